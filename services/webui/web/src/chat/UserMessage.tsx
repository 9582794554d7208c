import { memo, useState } from "react";
import type { Item } from "../session/view";
import { Button } from "../ui/Button";
import { AttachedFiles } from "./attachments";
import { CopyButton } from "../ui/CopyButton";
import { clock } from "../ui/format";
import { StoredImage } from "../ui/Stored";
import styles from "./UserMessage.module.css";

const LONG_CHARS = 1600;
const LONG_LINES = 16;
const SAID: Record<string, string> = { steer: "while it worked", followup: "queued before", system: "system" };

/** What the person said. Long texts are folded. */
export const UserMessage = memo(function UserMessage({ item }: { item: Item & { kind: "user" } }) {
  const [open, setOpen] = useState(false);
  const long = item.text.length > LONG_CHARS || item.text.split("\n").length > LONG_LINES;
  return (
    <article className={styles.message} id={`m-${item.id}`} aria-label="You">
      {item.text && <div className={long && !open ? `${styles.text} ${styles.folded}` : styles.text}>{item.text}</div>}
      <AttachedFiles files={item.files} />
      {item.images.length > 0 && (
        <div className={styles.images}>
          {item.images.map((image) => (
            <StoredImage key={image.object} object={image.object} alt={image.name ?? "attached picture"} />
          ))}
        </div>
      )}
      {long && (
        <Button tone="quiet" onClick={() => setOpen(!open)}>
          {open ? "Show less" : "Show all"}
        </Button>
      )}
      <footer>
        {SAID[item.source] && <span>{SAID[item.source]}</span>}
        {item.ts > 0 && <time dateTime={new Date(item.ts).toISOString()}>{clock(item.ts)}</time>}
        {item.text && <CopyButton text={item.text} />}
      </footer>
    </article>
  );
});
