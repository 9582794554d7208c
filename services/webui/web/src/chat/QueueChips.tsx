import { api } from "../api/client";
import type { LiveSession } from "../session/liveSession";
import { useRights } from "../session/open";
import { useStore } from "../session/store";
import { IconButton } from "../ui/Button";
import { Icon } from "../ui/Icon";
import { complain } from "../ui/toast";
import styles from "./QueueChips.module.css";

const WHEN: Record<string, string> = { steer: "steers next", followup: "afterwards", prompt: "next", system: "system" };

interface Chip {
  id: string;
  when: string;
  text: string;
  stored: boolean;
  onDrop: (() => void) | null;
  /** Back into the box. */
  onEdit: () => void;
}

/** What was said and waits for its moment; pale until the gateway has stored it. */
export function QueueChips({ session }: { session: LiveSession }) {
  const queue = useStore(session.store, (state) => state.view.queue);
  const outbox = useStore(session.store, (state) => state.outbox);
  const { write } = useRights(session);

  const chips: Chip[] = queue.map((item) => ({
    id: item.id,
    when: WHEN[item.kind] ?? item.kind,
    text: [item.text, ...item.files].filter(Boolean).join(" · "),
    stored: true,
    onEdit: () => session.giveBack([item]),
    onDrop: () =>
      void api
        .drop(session.id, item.id)
        .catch((error: unknown) => complain("Could not remove it from the queue", error)),
  }));
  for (const out of outbox) {
    if (out.kind === "prompt" || out.state === "refused") continue;
    chips.push({
      id: out.key,
      when: WHEN[out.kind] ?? out.kind,
      text: out.text,
      stored: out.state === "stored",
      onDrop: null,
      onEdit: () => undefined,
    });
  }
  if (chips.length === 0) return null;

  return (
    <ul className={styles.chips} aria-label="Queued messages">
      {chips.map((chip) => (
        <li key={chip.id} className={chip.stored ? styles.chip : `${styles.chip} ${styles.pale}`}>
          <span className={styles.when}>{chip.when}</span>
          <span className={styles.text} title={chip.text}>
            {chip.text}
          </span>
          {write && chip.onDrop && (
            <>
              <IconButton
                label="Edit: take it back into the box"
                small
                onClick={() => {
                  chip.onDrop?.();
                  chip.onEdit();
                }}
              >
                <Icon name="pencil" size={14} />
              </IconButton>
              <IconButton label="Drop" small onClick={chip.onDrop}>
                <Icon name="cross" size={14} />
              </IconButton>
            </>
          )}
        </li>
      ))}
    </ul>
  );
}
