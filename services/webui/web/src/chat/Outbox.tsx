import type { LiveSession } from "../session/liveSession";
import type { Outgoing } from "../session/outbox";
import { namesFor } from "../session/content";
import { restoreDraft } from "../session/drafts";
import { useStore } from "../session/store";
import { Button } from "../ui/Button";
import { AttachmentChips } from "./attachments";
import styles from "./UserMessage.module.css";

/** What was said and is not in the log yet: pale until the gateway has stored it. */
export function Outbox({ session }: { session: LiveSession }) {
  const outbox = useStore(session.store, (state) => state.outbox);
  return outbox
    .filter((out) => out.kind === "prompt" || out.state === "refused")
    .map((out) => (
      <div key={out.key} className={styles.alone}>
        <Said out={out} session={session} />
      </div>
    ));
}

function Said({ out, session }: { out: Outgoing; session: LiveSession }) {
  const look =
    out.state === "sending"
      ? `${styles.message} ${styles.pending}`
      : out.state === "refused"
        ? `${styles.message} ${styles.refused}`
        : styles.message;
  const words = out.text === namesFor(out.attachments.map((file) => file.name)) ? "" : out.text;
  return (
    <article className={look} aria-label="You" aria-busy={out.state === "sending"}>
      {words && <div className={styles.text}>{words}</div>}
      <AttachmentChips attachments={out.attachments} />
      {out.state === "sending" && out.problem && (
        <p className={styles.state}>Not sent yet: {out.problem} It is sent as soon as that is possible.</p>
      )}
      {out.state === "refused" && (
        <div className={styles.state}>
          <span>Not sent: {out.problem}</span>
          <Button
            onClick={() => {
              session.discard(out.key);
              restoreDraft(session.id, words, out.attachments);
            }}
          >
            Edit
          </Button>
          <Button
            onClick={() => {
              session.discard(out.key);
              session.send(out.kind, out.text, out.attachments);
            }}
          >
            Send again
          </Button>
        </div>
      )}
    </article>
  );
}
