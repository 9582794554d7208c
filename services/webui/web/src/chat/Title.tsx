import { renameSession } from "../sessions/actions";
import { RenameBox } from "../sessions/RenameBox";
import styles from "./Header.module.css";

/** The name of a session; a click renames it. */
export function Title({
  id,
  name,
  editing,
  onEditing,
}: {
  id: string;
  name: string;
  editing: boolean;
  onEditing: (editing: boolean) => void;
}) {
  if (!editing) {
    return (
      <button
        type="button"
        className={styles.title}
        title={`${name} (click to rename)`}
        onClick={() => onEditing(true)}
      >
        {name}
      </button>
    );
  }
  return (
    <RenameBox
      name={name}
      className={styles.rename}
      onDone={(title) => {
        onEditing(false);
        if (title) renameSession(id, title);
      }}
    />
  );
}
