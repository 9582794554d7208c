import { type SyntheticEvent, useState } from "react";
import { wordsOf } from "../api/pages";
import { me } from "../api/rights";
import { useStore } from "../session/store";
import { Button } from "../ui/Button";
import { CopyText } from "../ui/CopyText";
import { Dialog } from "../ui/Dialog";
import { LIFETIMES, type MadeToken, people, type Scope, SCOPES, scopesOf } from "./people";
import styles from "./People.module.css";

const MOST_NAME_CHARS = 200;
const USUAL = 1; // of LIFETIMES

/** Makes a token of one's own, and shows it this once. It is in the field, and nowhere else. */
export function CreateToken({ onMade, onClose }: { onMade: () => void; onClose: () => void }) {
  const offered = scopesOf(useStore(me, (state) => state));
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly Scope[]>(offered.includes("read") ? ["read"] : []);
  const [lifetime, setLifetime] = useState(USUAL);
  const [made, setMade] = useState<MadeToken | null>(null);
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState("");
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    setSaving(true);
    setRefusal("");
    const body = { name: name.trim(), scopes: [...scopes], expires_in_s: LIFETIMES[lifetime]?.s ?? null };
    people.makeToken(body).then(
      (token) => {
        setMade(token);
        onMade();
      },
      (error: unknown) => {
        setSaving(false);
        setRefusal(wordsOf(error));
      },
    );
  };
  if (made)
    return (
      <Dialog title="Your new token" onClose={onClose}>
        <p className={styles.about}>Copy it now: it is not stored, and cannot be shown again.</p>
        <CopyText secret label="Token" text={made.token} about="Send it as: Authorization: Bearer …" />
        <div className={styles.answers}>
          <Button tone="primary" onClick={onClose}>
            Done
          </Button>
        </div>
      </Dialog>
    );
  return (
    <Dialog title="Create a token" onClose={onClose}>
      <form className={styles.form} onSubmit={save} autoComplete="off">
        <label>
          <span className={styles.name}>Name</span>
          <input
            autoFocus
            value={name}
            maxLength={MOST_NAME_CHARS}
            placeholder="what it is for, such as ci"
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <fieldset>
          <legend className={styles.name}>It may</legend>
          {SCOPES.filter((one) => offered.includes(one.scope)).map(({ scope, means }) => (
            <label key={scope} className={styles.check}>
              <input
                type="checkbox"
                checked={scopes.includes(scope)}
                onChange={(event) =>
                  setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope))
                }
              />
              <span>
                {scope} <small>{means}</small>
              </span>
            </label>
          ))}
        </fieldset>
        <label>
          <span className={styles.name}>Expires in</span>
          <select value={lifetime} onChange={(event) => setLifetime(Number(event.target.value))}>
            {LIFETIMES.map((one, index) => (
              <option key={one.label} value={index}>
                {one.label}
              </option>
            ))}
          </select>
        </label>
        {refusal && (
          <p className="bad-news" role="alert">
            {refusal}
          </p>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={saving || scopes.length === 0}>
            Create
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
