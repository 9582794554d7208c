import { useState } from "react";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { ago, clock } from "../ui/format";
import { Icon } from "../ui/Icon";
import { Spinner } from "../ui/Spinner";
import { complain } from "../ui/toast";
import { useNow } from "../ui/useNow";
import { AGENT, type Credential, credentials, recipientOf, usesOf } from "./credentials";
import styles from "./Settings.module.css";

/** One credential: what uses it, what its last test found, and what can be done with it. */
export function CredentialRow({
  credential,
  mayChange,
  testing,
  onTest,
  onRotate,
  onRemoved,
}: {
  credential: Credential;
  mayChange: boolean;
  testing: boolean;
  onTest: () => void;
  onRotate: () => void;
  onRemoved: () => void;
}) {
  const { name, for: recipient, set_at_ms: setAt, set_by: by, used_by: used } = credential;
  const [removing, setRemoving] = useState(false);
  const now = useNow(true, 30_000);
  const remove = (): void => {
    credentials.remove(name, recipient).then(onRemoved, (error: unknown) => {
      complain(`Could not remove ${name}`, error);
      onRemoved();
    });
  };
  return (
    <li className={styles.credential}>
      <Icon name="key" />
      <div className={styles.what}>
        <strong>{name}</strong>
        <p>
          {usesOf(credential)} ·{" "}
          <span title={clock(setAt)}>
            stored {ago(setAt, now) === "now" ? "just now" : `${ago(setAt, now)} ago`}
            {by && ` by ${by}`}
          </span>
        </p>
        {recipient === AGENT && used.length === 0 && (
          <p>
            To use it: <code>models.providers.NAME.api_key.stored = {name}</code>
          </p>
        )}
        <TestResult credential={credential} testing={testing} now={now} />
      </div>
      {mayChange && (
        <div className={styles.ways}>
          {recipient === AGENT && (
            <Button aria-label={`Test ${name}`} disabled={testing} onClick={onTest}>
              Test
            </Button>
          )}
          <Button aria-label={`Rotate ${name}`} title="Replace its value" onClick={onRotate}>
            Rotate
          </Button>
          <Button tone="quiet" aria-label={`Remove ${name}`} onClick={() => setRemoving(true)}>
            Remove
          </Button>
        </div>
      )}
      {removing && (
        <Confirm
          title={`Remove ${name}?`}
          text={
            used.length > 0
              ? `${used.join(", ")} will have no key from the next request on. The value cannot be recovered.`
              : `It is for ${recipientOf(recipient)}. The value cannot be recovered.`
          }
          action="Remove"
          onYes={remove}
          onClose={() => setRemoving(false)}
        />
      )}
    </li>
  );
}

function TestResult({ credential, testing, now }: { credential: Credential; testing: boolean; now: number }) {
  const { readable, test } = credential;
  const when = test && (ago(test.at_ms, now) === "now" ? "just now" : `${ago(test.at_ms, now)} ago`);
  return (
    <p role="status" className={styles.result}>
      {testing && (
        <>
          <Spinner /> Asking the provider
        </>
      )}
      {!testing && !readable && (
        <span className={styles.bad}>
          <Icon name="warning" size={14} /> What uses it cannot read it any more: its own key has changed. Rotate it.
        </span>
      )}
      {!testing && readable && test?.state === "ok" && (
        <span className={styles.good} title={test.text}>
          <Icon name="check" size={14} /> Works · tested {when}
        </span>
      )}
      {!testing && readable && test?.state === "problem" && (
        <span className={styles.bad}>
          <Icon name="warning" size={14} /> Does not work: {test.text} · tested {when}
        </span>
      )}
    </p>
  );
}
