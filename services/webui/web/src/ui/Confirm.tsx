import { Button } from "./Button";
import { Dialog } from "./Dialog";
import styles from "./Confirm.module.css";

/** Asks before something that cannot be undone. */
export function Confirm({
  title,
  text,
  action,
  onYes,
  onClose,
}: {
  title: string;
  text: string;
  action: string;
  onYes: () => void;
  onClose: () => void;
}) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <div className={styles.answers}>
        <Button onClick={onClose}>Cancel</Button>
        <Button
          tone="danger"
          autoFocus
          onClick={() => {
            onYes();
            onClose();
          }}
        >
          {action}
        </Button>
      </div>
    </Dialog>
  );
}
