import { type ReactNode, useId, useState } from "react";
import { api } from "../api/client";
import type { CompactionEntry } from "../api/types";
import { Link, sessionPath } from "../routes";
import type { LiveSession } from "../session/liveSession";
import { useRights } from "../session/open";
import { useStore } from "../session/store";
import { sessionList } from "../sessions/list";
import { Button } from "../ui/Button";
import { cost, count } from "../ui/format";
import { Icon } from "../ui/Icon";
import { Markdown } from "../ui/Markdown";
import { complain } from "../ui/toast";
import styles from "./Compaction.module.css";
import { showMessage } from "./showMessage";

/** A line that stands for a long text, opened on demand. */
export function Summary({
  title,
  text,
  facts,
  children,
}: {
  title: ReactNode;
  text: string;
  /** What is known of the text, above it. */
  facts?: ReactNode;
  children?: ReactNode;
}) {
  const [open, setOpen] = useState(false);
  const id = useId();
  return (
    <section className={styles.summary}>
      <div className={styles.line}>
        <button
          type="button"
          className={styles.opener}
          aria-expanded={open}
          aria-controls={open ? id : undefined}
          onClick={() => setOpen(!open)}
        >
          <span className={open ? `${styles.arrow} ${styles.open}` : styles.arrow}>
            <Icon name="chevron" size={12} />
          </span>
          <span>{title}</span>
        </button>
        {children}
      </div>
      {open && (
        <div id={id} className={styles.text}>
          {facts}
          <div className={styles.words}>
            <Markdown text={text} />
          </div>
        </div>
      )}
    </section>
  );
}

/** Where the model is shown a summary instead of what is above; people see it all. */
export function Compaction({ entry, session }: { entry: CompactionEntry; session: LiveSession }) {
  const undone = useStore(session.store, (state) => state.view.undone.includes(entry.id));
  const inForce = useStore(session.store, ({ view }) => {
    const last = view.items.findLast((item) => item.kind === "compaction" && !view.undone.includes(item.id));
    return last?.id === entry.id;
  });
  const { write } = useRights(session);
  const [asked, setAsked] = useState(false);
  const undo = (): void => {
    setAsked(true);
    api.undoCompaction(session.id, entry.id).catch((error: unknown) => {
      setAsked(false);
      complain("Could not undo it", error);
    });
  };
  const { tokens_before: before = 0, tokens_after: after = 0 } = entry;
  const title = undone ? (
    "Summary taken back: the model is shown the earlier messages again"
  ) : (
    <>
      Earlier messages are summarised for the model{" "}
      {before > 0 && (
        <span className={styles.sizes}>
          {count(before)} → {count(after)} tokens
        </span>
      )}
    </>
  );
  return (
    <Summary title={title} text={entry.summary} facts={<Facts entry={entry} session={session} />}>
      <span role="status" className="visually-hidden">
        {undone && asked ? "The summary was taken back" : ""}
      </span>
      {inForce && write && (
        <Button tone="quiet" disabled={asked} title="Show the model the earlier messages again" onClick={undo}>
          {asked ? "Taking it back" : "Undo"}
        </Button>
      )}
    </Summary>
  );
}

/** Why it was written, by whom, and from where on the model has every word. */
function Facts({ entry, session }: { entry: CompactionEntry; session: LiveSession }) {
  const kept = useStore(session.store, ({ view }) => view.items.some((item) => item.id === entry.first_kept));
  const paid = cost(entry.usage ?? {});
  return (
    <div className={styles.facts}>
      <p>
        {WHY[entry.cause ?? "manual"]}
        {entry.instructions && <> with “{entry.instructions}”</>}.{" "}
        {entry.by ? `Written by ${entry.by}${paid && `, ${paid}`}.` : PLAIN}
      </p>
      <p>
        Nothing above was removed from this page.{" "}
        {kept && (
          <button type="button" className={styles.jump} onClick={() => showMessage(entry.first_kept)}>
            From here on the model still has every word
          </button>
        )}
      </p>
    </div>
  );
}

const WHY: Record<NonNullable<CompactionEntry["cause"]>, string> = {
  manual: "Asked for",
  threshold: "Done by itself, because the context window was nearly full",
  overflow: "Done by itself, because the provider found a request too long",
};
const PLAIN = "Made of the messages themselves, because no model wrote one.";

/** Says that what is above was said in another session, and leads there; or that a client sent it. */
export function ForkedFrom({ origin }: { origin: string }) {
  const title = useStore(sessionList, (list) => list.sessions.find((session) => session.id === origin)?.title ?? "");
  return (
    <p className={styles.fork}>
      <Icon name="fork" size={14} />
      <span>
        {origin ? (
          <>
            Forked from <Link to={sessionPath(origin)}>{title || "another session"}</Link>
          </>
        ) : (
          "Begins with a conversation that a client sent"
        )}
      </span>
    </p>
  );
}
