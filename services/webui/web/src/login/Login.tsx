import { type SyntheticEvent, useEffect, useState } from "react";
import { api, ApiError } from "../api/client";
import { Button } from "../ui/Button";
import { sentence } from "../ui/format";
import styles from "./Login.module.css";
import { whyNoToken } from "./whyOut";

type Way = "password" | "token";

/** Asks for a name and a password where somebody has one, else for a token. `why`: it is asked again. */
export function Login({ why, onDone }: { why: string; onDone: () => void }) {
  const [way, setWay] = useState<Way | null>(null);
  const [hasPasswords, setHasPasswords] = useState(false);
  const [tailscale, setTailscale] = useState("");
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  // The gateway shows this page at the address of a link that it refused.
  const [byLink] = useState(() => new URLSearchParams(location.search).has("code"));
  useEffect(() => {
    if (byLink) history.replaceState(null, "", "/login");
  }, [byLink]);
  useEffect(() => {
    const offer = (ways: { password: boolean; tailscale?: string }): void => {
      setTailscale(ways.tailscale ?? "");
      setHasPasswords(ways.password);
      setWay((chosen) => chosen ?? (ways.password ? "password" : "token"));
    };
    api.loginWays().then(offer, () => offer({ password: false }));
  }, []);

  const signIn = async (by: Parameters<typeof api.login>[0]): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      await api.login(by);
      await api.me(); // a login that may not read is of no use here
      onDone();
    } catch (error) {
      setProblem(wordsFor(error, "token" in by ? by.token : ""));
      if ("password" in by) setPassword("");
      setBusy(false);
    }
  };

  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    void signIn(way === "password" ? { name: name.trim(), password } : { token: token.trim() });
  };

  const other = (next: Way): void => {
    setWay(next);
    setProblem(null);
  };

  return (
    <main className={styles.page}>
      <form className={styles.card} onSubmit={submit}>
        <img src="/favicon.svg" alt="" width="40" height="40" />
        <h1>Sign in to Fairlead</h1>
        {byLink && (
          <p role="alert" className={styles.notice}>
            This link was already used, or it has expired. Whoever sent it can make a new one; where Fairlead runs,{" "}
            <code>fairlead login</code> prints one.
          </p>
        )}
        {why && !byLink && problem === null && (
          <p role="alert" className={styles.notice}>
            {why}
          </p>
        )}
        {tailscale && (
          <Button tone="primary" disabled={busy} onClick={() => void signIn({ tailscale: true })}>
            Continue as {tailscale}
          </Button>
        )}
        {way === "password" && (
          <>
            <label className={styles.field}>
              Name
              <input
                name="username"
                autoComplete="username"
                autoCapitalize="none"
                autoCorrect="off"
                spellCheck={false}
                maxLength={64}
                autoFocus
                required
                value={name}
                onChange={(event) => setName(event.target.value)}
              />
            </label>
            <label className={styles.field}>
              Password
              <input
                name="password"
                type="password"
                autoComplete="current-password"
                maxLength={1024}
                required
                value={password}
                onChange={(event) => setPassword(event.target.value)}
                aria-invalid={problem !== null}
                aria-describedby="problem"
              />
            </label>
          </>
        )}
        {way === "token" && (
          <>
            <p>
              Paste your token: the one that was printed at the first start, or one that was made for you. Or open a
              link: an admin can send you one, and <code>fairlead login</code> prints one where Fairlead runs.
            </p>
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
          </>
        )}
        {way !== null && (
          <Button
            tone="primary"
            type="submit"
            disabled={busy || !(way === "password" ? name && password : token.trim())}
          >
            {busy ? "Signing in…" : "Sign in"}
          </Button>
        )}
        <p id="problem" role="alert" className={styles.problem}>
          {problem}
        </p>
        {way === "password" && (
          <Button tone="quiet" onClick={() => other("token")}>
            Use a token instead
          </Button>
        )}
        {way === "token" && hasPasswords && (
          <Button tone="quiet" onClick={() => other("password")}>
            Use a password instead
          </Button>
        )}
      </form>
    </main>
  );
}

function wordsFor(error: unknown, token: string): string {
  if (!(error instanceof ApiError)) return error instanceof Error ? error.message : String(error);
  return token ? whyNoToken(error, token) : sentence(error.message);
}
