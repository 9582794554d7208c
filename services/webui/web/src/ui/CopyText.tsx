import { useId, useRef, useState } from "react";
import { Button } from "./Button";
import styles from "./CopyText.module.css";

/** A text to take along, with a button that copies it. Where the browser allows no copying it is selected instead. */
export function CopyText({
  label,
  text,
  about = "",
  secret = false,
}: {
  label: string;
  text: string;
  about?: string;
  /** Is shown this once: in letters of one width, all of it. */
  secret?: boolean;
}) {
  const id = useId();
  const field = useRef<HTMLTextAreaElement>(null);
  const [said, setSaid] = useState("");
  const copy = (): void => {
    const select = (): void => {
      field.current?.select();
      setSaid("Selected: copy it with the keys");
    };
    // Only pages of a secure origin have a clipboard.
    const clipboard = navigator.clipboard as Clipboard | undefined;
    if (!clipboard) select();
    else void clipboard.writeText(text).then(() => setSaid("Copied"), select);
  };
  return (
    <div className={styles.copy}>
      <label htmlFor={id}>{label}</label>
      <div className={styles.line}>
        <textarea
          ref={field}
          id={id}
          readOnly
          rows={secret ? 2 : 1}
          spellCheck={false}
          value={text}
          onFocus={(event) => event.target.select()}
        />
        <Button onClick={copy} aria-label={`Copy: ${label}`}>
          Copy
        </Button>
      </div>
      <small role="status">{said || about}</small>
    </div>
  );
}
