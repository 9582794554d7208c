import { type ReactNode, useState } from "react";
import { api } from "../api/client";
import type { CompactionEntry } from "../api/types";
import { Link, sessionPath } from "../routes";
import type { LiveSession } from "../session/liveSession";
import { useStore } from "../session/store";
import { sessionList } from "../sessions/list";
import { Button } from "../ui/Button";
import { count } from "../ui/format";
import { Icon } from "../ui/Icon";
import { Markdown } from "../ui/Markdown";
import { complain } from "../ui/toast";
import styles from "./Compaction.module.css";

/** A line that stands for a long text, opened on demand. */
export function Summary({ title, text, children }: { title: string; text: string; children?: ReactNode }) {
  const [open, setOpen] = useState(false);
  return (
    <section className={styles.summary}>
      <div className={styles.line}>
        <button type="button" className={styles.opener} aria-expanded={open} onClick={() => setOpen(!open)}>
          <span className={open ? `${styles.arrow} ${styles.open}` : styles.arrow}>
            <Icon name="chevron" size={12} />
          </span>
          {title}
        </button>
        {children}
      </div>
      {open && (
        <div className={styles.text}>
          <Markdown text={text} />
        </div>
      )}
    </section>
  );
}

/** Where the model is shown a summary instead of all that is above; people see it all. */
export function Compaction({ entry, session }: { entry: CompactionEntry; session: LiveSession }) {
  const undone = useStore(session.store, (state) => state.view.undone.includes(entry.id));
  const inForce = useStore(session.store, ({ view }) => {
    const last = view.items.findLast((item) => item.kind === "compaction" && !view.undone.includes(item.id));
    return last?.id === entry.id;
  });
  const [asked, setAsked] = useState(false);
  const undo = (): void => {
    setAsked(true);
    api.undoCompaction(session.id, entry.id).catch((error: unknown) => {
      setAsked(false);
      complain("Could not undo it", error);
    });
  };
  const { tokens_before: before = 0, tokens_after: after = 0 } = entry;
  const sizes = before > 0 ? ` (${count(before)} → ${count(after)} tokens)` : "";
  const title = undone
    ? "A summary of earlier messages was taken back: the model is shown them again"
    : `Earlier messages were summarised for the model${sizes}`;
  return (
    <Summary title={title} text={entry.summary}>
      {inForce && (
        <Button tone="quiet" disabled={asked} onClick={undo}>
          Undo
        </Button>
      )}
    </Summary>
  );
}

/** Says that what is above was said in another session, and leads there. */
export function ForkedFrom({ origin }: { origin: string }) {
  const title = useStore(sessionList, (list) => list.sessions.find((session) => session.id === origin)?.title ?? "");
  return (
    <p className={styles.fork}>
      <Icon name="fork" size={14} />
      <span>
        Forked from <Link to={sessionPath(origin)}>{title || "another session"}</Link>
      </span>
    </p>
  );
}
