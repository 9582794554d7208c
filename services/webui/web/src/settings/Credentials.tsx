import { useCallback, useEffect, useState } from "react";
import { Button } from "../ui/Button";
import { Problem } from "../ui/Problem";
import { Spinner } from "../ui/Spinner";
import { complain } from "../ui/toast";
import { CredentialRow } from "./CredentialRow";
import { AGENT, type Credential, credentials } from "./credentials";
import styles from "./Settings.module.css";
import { StoreCredential } from "./StoreCredential";

/** Keys of model providers and of tools: stored, used, tested and replaced here, and never shown. */
export function Credentials({ mayChange }: { mayChange: boolean }) {
  const { known, problem, ask, put } = useCredentials();
  const [storing, setStoring] = useState<"new" | Credential | null>(null);
  const [testing, setTesting] = useState<readonly string[]>([]);

  const test = useCallback(
    (name: string, recipient: string): void => {
      const key = keyOf(name, recipient);
      setTesting((before) => [...before, key]);
      credentials
        .test(name, recipient)
        .then(put, (error: unknown) => complain(`Could not test ${name}`, error))
        .finally(() => setTesting((before) => before.filter((other) => other !== key)));
    },
    [put],
  );
  /** What is stored is tried out at once: a mistyped key is seen here, and not in the next session. */
  const stored = (name: string, recipient: string): void => {
    setStoring(null);
    void ask().then((found) => {
      const used = found?.find((one) => keyOf(one.name, one.for) === keyOf(name, recipient))?.used_by ?? [];
      if (recipient === AGENT && used.length > 0) test(name, recipient);
    });
  };

  return (
    <section aria-labelledby="credentials">
      <div className={styles.head}>
        <h2 id="credentials">Credentials</h2>
        {mayChange && (
          <Button tone="primary" onClick={() => setStoring("new")}>
            Store a credential
          </Button>
        )}
      </div>
      <p className={styles.about}>
        Keys of model providers and of tools. Each is encrypted for the service that uses it as soon as it is stored,
        and cannot be shown again.{" "}
        {!mayChange && "Changing them needs the right “admin”, which this login does not have."}
      </p>
      {problem && <Problem onAgain={() => void ask()}>The credentials could not be listed: {problem}</Problem>}
      {!known && !problem && <Spinner />}
      {known?.length === 0 && (
        <p className={styles.none}>
          No credential is stored. A provider takes one by its name:{" "}
          <code>models.providers.openai.api_key.stored = openai</code>
        </p>
      )}
      {known && known.length > 0 && (
        <ul className={styles.list} aria-label="Stored credentials">
          {known.map((one) => (
            <CredentialRow
              key={keyOf(one.name, one.for)}
              credential={one}
              mayChange={mayChange}
              testing={testing.includes(keyOf(one.name, one.for))}
              onTest={() => test(one.name, one.for)}
              onRotate={() => setStoring(one)}
              onRemoved={() => void ask()}
            />
          ))}
        </ul>
      )}
      {storing && (
        <StoreCredential
          rotated={storing === "new" ? null : storing}
          known={known ?? []}
          onStored={stored}
          onClose={() => setStoring(null)}
        />
      )}
    </section>
  );
}

/** The list, and a way to ask for it again. */
function useCredentials() {
  const [known, setKnown] = useState<readonly Credential[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const ask = useCallback(async (): Promise<readonly Credential[] | null> => {
    try {
      const found = await credentials.list();
      setKnown(found);
      setProblem(null);
      return found;
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      return null;
    }
  }, []);
  useEffect(() => {
    void Promise.resolve().then(ask);
  }, [ask]);
  const put = useCallback((changed: Credential): void => {
    const key = keyOf(changed.name, changed.for);
    setKnown((before) => before?.map((one) => (keyOf(one.name, one.for) === key ? changed : one)) ?? null);
  }, []);
  return { known, problem, ask, put };
}

const keyOf = (name: string, recipient: string): string => `${recipient} ${name}`;
