import { type SyntheticEvent, useState } from "react";
import { wordsOf } from "../api/pages";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { people } from "./people";
import styles from "./People.module.css";

/** Sets the password of a user: one's own with the present one. All other logins of the user in browsers end. */
export function SetPassword({ user, own, onClose }: { user: string; own: boolean; onClose: () => void }) {
  const [old, setOld] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [revokes, setRevokes] = useState(false);
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState("");
  const differs = again !== "" && again !== password;
  const ready = !saving && password !== "" && again === password && (!own || old !== "");
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (!ready) return;
    setSaving(true);
    setRefusal("");
    const body = { password, ...(own ? { old } : {}), ...(revokes ? { revoke_tokens: true } : {}) };
    people.setPassword(user, body).then(onClose, (error: unknown) => {
      setSaving(false);
      setRefusal(wordsOf(error));
    });
  };
  return (
    <Dialog title={own ? "Change my password" : `Set a password for ${user}`} onClose={onClose}>
      <form className={styles.form} onSubmit={save}>
        <input type="text" autoComplete="username" value={user} readOnly hidden />
        {own && (
          <label>
            <span className={styles.name}>Present password</span>
            <input
              type="password"
              aria-label="Present password"
              autoFocus
              autoComplete="current-password"
              value={old}
              onChange={(event) => setOld(event.target.value)}
            />
          </label>
        )}
        <label>
          <span className={styles.name}>New password</span>
          <input
            type="password"
            aria-label="New password"
            autoFocus={!own}
            autoComplete="new-password"
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
          <small>At least 12 characters; a sentence is easier to keep in mind than signs.</small>
        </label>
        <label>
          <span className={styles.name}>New password again</span>
          <input
            type="password"
            aria-label="New password again"
            autoComplete="new-password"
            aria-invalid={differs}
            value={again}
            onChange={(event) => setAgain(event.target.value)}
          />
          <small role="status" className={differs ? "bad-news" : ""}>
            {differs ? "It is not the same." : ""}
          </small>
        </label>
        <label className={styles.check}>
          <input type="checkbox" checked={revokes} onChange={(event) => setRevokes(event.target.checked)} />
          <span>Revoke all API tokens too</span>
        </label>
        <p className={styles.plain}>All other logins of {own ? "yours" : user} in browsers end.</p>
        {refusal && (
          <p className="bad-news" role="alert">
            {refusal}
          </p>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={!ready}>
            Set it
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
