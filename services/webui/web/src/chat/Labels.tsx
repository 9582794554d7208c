import { type SyntheticEvent, useState } from "react";
import { goToEntry, MOST_LABEL_CHARS, setLabel } from "../session/labels";
import type { LiveSession } from "../session/liveSession";
import { useRights } from "../session/open";
import { useStore } from "../session/store";
import { isOnBranch } from "../session/tree";
import { Button, IconButton } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { Icon } from "../ui/Icon";
import { Menu } from "../ui/Menu";
import { complain } from "../ui/toast";
import header from "./Header.module.css";
import styles from "./Labels.module.css";
import { showMessage } from "./showMessage";

/** Names a message, to find it again. */
export function LabelButton({ session, id }: { session: LiveSession; id: string }) {
  const [editing, setEditing] = useState(false);
  return (
    <>
      <IconButton label="Label" small onClick={() => setEditing(true)}>
        <Icon name="tag" />
      </IconButton>
      {editing && <LabelDialog session={session} id={id} onClose={() => setEditing(false)} />}
    </>
  );
}

/** The name of a message, if it has one; it opens to be changed. */
export function LabelChip({ session, id }: { session: LiveSession; id: string }) {
  const label = useStore(session.store, ({ view }) => view.labels[id] ?? "");
  const { write } = useRights(session);
  const [editing, setEditing] = useState(false);
  return (
    <>
      {label && (
        <button
          type="button"
          className={styles.chip}
          title={write ? "Change the label" : "Label"}
          disabled={!write}
          onClick={() => setEditing(true)}
        >
          <Icon name="tag" size={12} /> <span>{label}</span>
        </button>
      )}
      {editing && <LabelDialog session={session} id={id} onClose={() => setEditing(false)} />}
    </>
  );
}

function LabelDialog({ session, id, onClose }: { session: LiveSession; id: string; onClose: () => void }) {
  const before = session.store.get().view.labels[id] ?? "";
  const [label, setText] = useState(before);
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (label.trim() !== before) setLabel(session, id, label);
    onClose();
  };
  return (
    <Dialog title={before ? "Change the label" : "Label this message"} onClose={onClose}>
      <form className={styles.form} onSubmit={save}>
        <input
          aria-label="Label"
          autoFocus
          maxLength={MOST_LABEL_CHARS}
          placeholder="Before the migration"
          value={label}
          onFocus={(event) => event.target.select()}
          onChange={(event) => setText(event.target.value)}
        />
        <p>Labels are listed at the top of the session, and lead back here from any branch.</p>
        <div className={styles.answers}>
          {before && (
            <Button
              tone="danger"
              onClick={() => {
                setLabel(session, id, "");
                onClose();
              }}
            >
              Remove
            </Button>
          )}
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={label.trim() === ""}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** All labels of a session, to go to one. */
export function LabelsMenu({ session }: { session: LiveSession }) {
  const labels = useStore(session.store, ({ view }) => view.labels);
  const log = useStore(session.store, ({ view }) => view.log);
  const inherited = useStore(session.store, ({ view }) => view.inherited);
  const older = useStore(session.store, (state) => state.older !== "none");
  const all = Object.entries(labels);
  if (all.length === 0) return null;
  const go = async (id: string): Promise<void> => {
    if (!(await goToEntry(session, id))) return;
    // The page follows the log by frames: what was just gone to may not be drawn yet.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        if (!showMessage(id)) complain("Could not go there", "the message is not shown here.");
      }),
    );
  };
  return (
    <Menu
      label={`${all.length === 1 ? "1 label" : `${all.length} labels`}: go to one`}
      className={header.choice}
      items={[
        ...all.map(([id, label]) => ({
          id,
          label,
          hint: isOnBranch(log, inherited, id) ? "" : "on another branch",
          onPick: () => void go(id),
        })),
        ...(older
          ? [{ label: "Load earlier messages", hint: "to see their labels", onPick: () => void session.loadOlder() }]
          : []),
      ]}
    >
      <Icon name="tag" size={14} /> {all.length === 1 ? "1 label" : `${all.length} labels`}
    </Menu>
  );
}
