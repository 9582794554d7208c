import { type SyntheticEvent, useId, useState } from "react";
import { wordsOf } from "../api/pages";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import styles from "./ShareSession.module.css";
import { userNameProblem, useUserNames } from "./sharing";

/** Gives a session or a job to another user; administrators alone may. */
export function ChangeOwner({
  of,
  owner,
  means,
  give,
  onClose,
}: {
  of: string;
  owner: string;
  /** What follows from it. */
  means: string;
  give: (name: string) => Promise<unknown>;
  onClose: () => void;
}) {
  const [name, setName] = useState("");
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState("");
  const known = useUserNames();
  const list = useId();
  const wanted = name.trim().toLowerCase();
  const wrong = userNameProblem(wanted);
  const ready = !saving && wanted !== "" && wanted !== owner && wrong === "";
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (!ready) return;
    setSaving(true);
    setRefusal("");
    give(wanted).then(onClose, (error: unknown) => {
      setSaving(false);
      setRefusal(wordsOf(error));
    });
  };
  return (
    <Dialog title={`Change the owner of “${of}”`} onClose={onClose}>
      <form className={styles.form} onSubmit={save}>
        <p className={styles.about}>
          It belongs to <strong>{owner}</strong>. {means}
        </p>
        <input
          aria-label="New owner"
          placeholder="ann"
          autoFocus
          autoCapitalize="none"
          autoComplete="off"
          spellCheck={false}
          list={list}
          value={name}
          aria-invalid={wrong !== ""}
          onChange={(event) => {
            setName(event.target.value);
            setRefusal("");
          }}
        />
        <datalist id={list}>
          {["admin", ...known]
            .filter((one) => one !== owner)
            .map((one) => (
              <option key={one} value={one} />
            ))}
        </datalist>
        {(refusal || wrong) && (
          <p className="bad-news" role="alert">
            {refusal || wrong}
          </p>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={!ready}>
            Change owner
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
