import { type SyntheticEvent, useEffect, useId, useState } from "react";
import { readStatus } from "../api/status";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { AGENT, type Credential, credentials, nameProblem, recipientOf, valueProblem } from "./credentials";
import styles from "./Settings.module.css";

/** Stores a value under a name, or another value under the name of `rotated`. The value is in the field, and nowhere else. */
export function StoreCredential({
  rotated,
  known,
  onStored,
  onClose,
}: {
  rotated: Credential | null;
  known: readonly Credential[];
  onStored: (name: string, recipient: string) => void;
  onClose: () => void;
}) {
  const [name, setName] = useState(rotated?.name ?? "");
  const [recipient, setRecipient] = useState(rotated?.for ?? AGENT);
  const [value, setValue] = useState("");
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState<string | null>(null);
  const hosts = useHosts(rotated === null);
  const ids = { name: useId(), value: useId() };
  const problems = { name: nameProblem(name), value: valueProblem(value) };
  const replaces = !rotated && known.some((one) => one.name === name && one.for === recipient);
  const ready = !saving && name !== "" && value.trim() !== "" && !problems.name && !problems.value;

  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (!ready) return;
    setSaving(true);
    setRefusal(null);
    credentials.put(name, recipient, value.trim()).then(
      () => onStored(name, recipient),
      (error: unknown) => {
        setSaving(false);
        setRefusal(error instanceof Error ? error.message : String(error));
      },
    );
  };
  return (
    <Dialog title={rotated ? `Rotate ${rotated.name}` : "Store a credential"} onClose={onClose}>
      <form className={styles.form} onSubmit={save} autoComplete="off">
        {rotated ? (
          <p>The new value takes the place of the old one, in sessions that run as well, without a restart.</p>
        ) : (
          <label>
            <span className={styles.name}>Name</span>
            <input
              autoFocus
              value={name}
              spellCheck={false}
              autoCapitalize="none"
              placeholder="openai"
              aria-describedby={ids.name}
              aria-invalid={problems.name !== ""}
              onChange={(event) => setName(event.target.value)}
            />
            <small id={ids.name} className={problems.name ? styles.bad : ""}>
              {problems.name || (replaces ? "Is stored already: its value will be replaced." : "What it is for.")}
            </small>
          </label>
        )}
        <label>
          <span className={styles.name}>Value</span>
          <input
            type="password"
            autoFocus={rotated !== null}
            value={value}
            autoComplete="off"
            aria-describedby={ids.value}
            aria-invalid={problems.value !== ""}
            onChange={(event) => setValue(event.target.value)}
          />
          <small id={ids.value} className={problems.value ? styles.bad : ""}>
            {problems.value || "It cannot be shown again once it is stored."}
          </small>
        </label>
        {!rotated && hosts.length > 0 && (
          <label>
            <span className={styles.name}>Who uses it, and alone can read it</span>
            <select value={recipient} onChange={(event) => setRecipient(event.target.value)}>
              {[AGENT, ...hosts].map((each) => (
                <option key={each} value={each}>
                  {recipientOf(each)}
                </option>
              ))}
            </select>
          </label>
        )}
        {refusal && (
          <p className={styles.bad} role="alert">
            It was not stored: {refusal}
          </p>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={!ready}>
            {saving ? "Storing" : rotated || replaces ? "Replace" : "Store"}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** Hosts that credentials can be sealed to, as recipients. */
function useHosts(wanted: boolean): readonly string[] {
  const [hosts, setHosts] = useState<readonly string[]>([]);
  useEffect(() => {
    if (!wanted) return;
    const leaving = new AbortController();
    readStatus(leaving.signal).then(
      ({ executors }) => setHosts([...new Set(executors.map((one) => `host:${one.host}`))].sort()),
      () => undefined, // without it one can store for model providers, which most are for
    );
    return () => leaving.abort();
  }, [wanted]);
  return hosts;
}
