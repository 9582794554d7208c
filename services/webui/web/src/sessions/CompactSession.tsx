import { type KeyboardEvent, type SyntheticEvent, useState } from "react";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { compactSession } from "./actions";
import styles from "./SessionSettings.module.css";

const MOST_CHARS = 10_000;

/** Asks what the summary should keep in particular. */
export function CompactSession({ id, onClose }: { id: string; onClose: () => void }) {
  const [instructions, setInstructions] = useState("");
  const begin = (event: SyntheticEvent): void => {
    event.preventDefault();
    compactSession(id, instructions.trim());
    onClose();
  };
  const press = (event: KeyboardEvent<HTMLTextAreaElement>): void => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) begin(event);
  };
  return (
    <Dialog title="Summarise earlier messages" onClose={onClose}>
      <form className={styles.form} onSubmit={begin}>
        <p>
          The model is shown a summary instead of the older messages, which leaves it more room and costs less. You
          still see everything here, and can undo it.
        </p>
        <label>
          <span className={styles.name}>What should it keep in particular? (optional)</span>
          <textarea
            rows={3}
            autoFocus
            maxLength={MOST_CHARS}
            placeholder="The numbers of the invoices, and what was promised to whom"
            value={instructions}
            onChange={(event) => setInstructions(event.target.value)}
            onKeyDown={press}
          />
        </label>
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary">
            Summarise
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
