import { type SyntheticEvent, useId, useState } from "react";
import { ApiError } from "../api/client";
import { wordsOf } from "../api/pages";
import { userNameProblem } from "../sessions/sharing";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { people, type Role, ROLES } from "./people";
import styles from "./People.module.css";

/** Adds a user, who then gets a link to log in. */
export function AddUser({ onAdded, onClose }: { onAdded: (name: string) => void; onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("operator");
  const [adopt, setAdopt] = useState(false);
  const [wasThere, setWasThere] = useState(false);
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState("");
  const about = useId();
  const problem = userNameProblem(name);
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    setSaving(true);
    setRefusal("");
    people.add({ name, role, ...(adopt ? { adopt } : {}) }).then(
      () => onAdded(name),
      (error: unknown) => {
        setSaving(false);
        setRefusal(wordsOf(error));
        setWasThere(error instanceof ApiError && error.status === 409 && error.message.includes("`adopt`"));
      },
    );
  };
  return (
    <Dialog title="Add a user" onClose={onClose}>
      <form className={styles.form} onSubmit={save} autoComplete="off">
        <label>
          <span className={styles.name}>Name</span>
          <input
            autoFocus
            value={name}
            spellCheck={false}
            autoCapitalize="none"
            placeholder="ann"
            aria-describedby={about}
            aria-invalid={problem !== ""}
            onChange={(event) => {
              setName(event.target.value);
              setWasThere(false);
              setAdopt(false);
            }}
          />
          <small id={about} className={problem ? "bad-news" : ""}>
            {problem || "It is what others see, and cannot be changed."}
          </small>
        </label>
        <fieldset>
          <legend className={styles.name}>Role</legend>
          {ROLES.map((one) => (
            <label key={one.role} className={styles.check}>
              <input type="radio" name="role" checked={role === one.role} onChange={() => setRole(one.role)} />
              <span>
                {one.role} <small>{one.means}</small>
              </span>
            </label>
          ))}
        </fieldset>
        {refusal && (
          <p className="bad-news" role="alert">
            {refusal}
          </p>
        )}
        {wasThere && (
          <label className={styles.check}>
            <input type="checkbox" checked={adopt} onChange={(event) => setAdopt(event.target.checked)} />
            <span>It is the same person: give the sessions of the earlier user to this one</span>
          </label>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={saving || name === "" || problem !== ""}>
            Add
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
