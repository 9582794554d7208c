import { type SyntheticEvent, useEffect, useState } from "react";
import { api, ApiError } from "../api/client";
import { Button } from "../ui/Button";
import styles from "./Login.module.css";

/** Asks for the token that `fairlead up` printed. */
export function Login({ onDone }: { onDone: () => void }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  // The gateway shows this page at the address of a link that it refused.
  const [byLink] = useState(() => new URLSearchParams(location.search).has("code"));
  useEffect(() => {
    if (byLink) history.replaceState(null, "", "/login");
  }, [byLink]);

  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await api.login(token.trim());
      onDone();
    } catch (error) {
      const refused = error instanceof ApiError && (error.status === 401 || error.status === 403);
      setProblem(
        refused
          ? "This token is not valid. Use the token that was printed at the first start."
          : error instanceof Error
            ? error.message
            : String(error),
      );
      setBusy(false);
    }
  };

  return (
    <main className={styles.page}>
      <form className={styles.card} onSubmit={(event) => void submit(event)}>
        <img src="/favicon.svg" alt="" width="40" height="40" />
        <h1>Sign in to Fairlead</h1>
        {byLink && (
          <p role="alert" className={styles.notice}>
            This link was already used, or it has expired. <code>fairlead login</code> prints a new one.
          </p>
        )}
        <p>Paste the token that was printed when Fairlead started, or open the link that was printed with it.</p>
        <input type="text" autoComplete="username" value="fairlead" readOnly hidden />
        <label htmlFor="token" className="visually-hidden">
          Token
        </label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          placeholder="Token"
          autoFocus
          required
          value={token}
          onChange={(event) => setToken(event.target.value)}
          aria-invalid={problem !== null}
          aria-describedby="problem"
        />
        <Button tone="primary" type="submit" disabled={busy || token.trim() === ""}>
          {busy ? "Signing in…" : "Sign in"}
        </Button>
        <p id="problem" role="alert" className={styles.problem}>
          {problem}
        </p>
      </form>
    </main>
  );
}
