import { useCallback, useEffect, useState } from "react";
import { api } from "../api/client";
import { wordsOf } from "../api/pages";
import { me, useIsAdmin, useMay } from "../api/rights";
import { useStore } from "../session/store";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { Escaped } from "../ui/Escaped";
import { ago, clock } from "../ui/format";
import { Icon } from "../ui/Icon";
import { Problem } from "../ui/Problem";
import { Spinner } from "../ui/Spinner";
import { complain } from "../ui/toast";
import { useNow } from "../ui/useNow";
import { CreateToken } from "./CreateToken";
import { PairDevice } from "./PairDevice";
import { SetPassword } from "./SetPassword";
import { inOrder, isOver, type ListedToken, people } from "./people";
import styles from "./People.module.css";

/** What one may here, the tokens that programs and devices have of it, and the way to another device. */
export function MyAccess() {
  const who = useStore(me, (state) => state);
  const admin = useIsAdmin();
  const pairs = useMay("pairing");
  const passwords = usePasswords();
  const { tokens, problem, ask } = useTokens();
  const [all, setAll] = useState(false);
  const [open, setOpen] = useState<"token" | "pair" | "password" | null>(null);
  const now = useNow(true, 30_000);
  const shown = inOrder(tokens ?? [], now).filter((token) => all || token.user === who?.account);
  return (
    <section aria-labelledby="my-access">
      <div className={styles.head}>
        <h2 id="my-access">My access</h2>
        <span className={styles.ways}>
          {passwords && who && <Button onClick={() => setOpen("password")}>Change my password</Button>}
          {pairs && <Button onClick={() => setOpen("pair")}>Pair a device</Button>}
          <Button tone="primary" onClick={() => setOpen("token")}>
            Create a token
          </Button>
        </span>
      </div>
      <p className={styles.about}>
        You are logged in as <strong>{who?.account}</strong> with the role {who?.role}. Rights of this login:{" "}
        {who?.scopes.join(", ")}. Programs and other devices have tokens: each with rights of its own, never more than
        yours, and revoked at once.
      </p>
      {admin && (
        <label className={styles.check}>
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
          Tokens of all users
        </label>
      )}
      {problem && <Problem onAgain={ask}>The tokens could not be listed: {problem}</Problem>}
      {!tokens && !problem && <Spinner />}
      {tokens && shown.length === 0 && (
        <p className={styles.none}>No token was made. A login in a browser needs none.</p>
      )}
      {shown.length > 0 && (
        <ul className={styles.list} aria-label="Tokens">
          {shown.map((token) => (
            <TokenRow
              key={token.id}
              token={token}
              now={now}
              mine={token.user === who?.account}
              dependents={tokens?.filter((one) => one.made_from === token.id).length ?? 0}
              onRevoked={ask}
            />
          ))}
        </ul>
      )}
      {open === "token" && (
        <CreateToken
          onMade={ask}
          onClose={() => {
            setOpen(null);
          }}
        />
      )}
      {open === "password" && who && <SetPassword own user={who.account} onClose={() => setOpen(null)} />}
      {open === "pair" && (
        <PairDevice
          user={null}
          onClose={() => {
            setOpen(null);
            ask();
          }}
        />
      )}
    </section>
  );
}

function TokenRow({
  token,
  now,
  mine,
  dependents,
  onRevoked,
}: {
  token: ListedToken;
  now: number;
  mine: boolean;
  /** How many tokens end with it. */
  dependents: number;
  onRevoked: () => void;
}) {
  const [revoking, setRevoking] = useState(false);
  const name = token.name || `Token ${token.id.slice(0, 6)}`;
  const used = token.last_used_at ? `last used ${since(token.last_used_at, now)}` : "never used";
  const revoke = (): void =>
    void people.revoke(token.id).then(onRevoked, (error: unknown) => {
      complain(`Could not revoke ${name}`, error);
      onRevoked();
    });
  return (
    <li className={isOver(token, now) ? `${styles.row} ${styles.off}` : styles.row}>
      <Icon name="key" />
      <div className={styles.what}>
        <strong>
          <Escaped text={name} />
        </strong>
        {!mine && <span className={styles.tag}>{token.user}</span>}
        <p>
          {token.scopes.join(", ")} · <span title={clock(token.created_at)}>made {since(token.created_at, now)}</span>
          {token.created_by !== token.user && ` by ${token.created_by}`} · {used}
        </p>
        <p>
          {isOver(token, now)
            ? `Expired ${clock(token.expires_at)}`
            : token.expires_at
              ? `Expires ${clock(token.expires_at)}`
              : "Does not expire"}
          {token.made_from && `; ends with token ${token.made_from.slice(0, 6)}`}
        </p>
      </div>
      <Button tone="quiet" aria-label={`Revoke ${name}`} onClick={() => setRevoking(true)}>
        Revoke
      </Button>
      {revoking && (
        <Confirm
          title={`Revoke ${name}?`}
          text={`What uses it is refused at once, and what it has open ends within seconds.${
            dependents > 0 ? ` ${dependents} made from it end${dependents === 1 ? "s" : ""} with it.` : ""
          } It cannot be taken back.`}
          action="Revoke"
          onYes={revoke}
          onClose={() => setRevoking(false)}
        />
      )}
    </li>
  );
}

/** Whether people log in here with passwords at all. */
function usePasswords(): boolean {
  const [used, setUsed] = useState(false);
  useEffect(() => {
    api.loginWays().then(
      (ways) => setUsed(ways.password),
      () => undefined,
    );
  }, []);
  return used;
}

const since = (at: number, now: number): string => (ago(at, now) === "now" ? "just now" : `${ago(at, now)} ago`);

function useTokens(): { tokens: readonly ListedToken[] | null; problem: string; ask: () => void } {
  const [tokens, setTokens] = useState<readonly ListedToken[] | null>(null);
  const [problem, setProblem] = useState("");
  const ask = useCallback((): void => {
    people.tokens().then(
      (found) => {
        setTokens(found);
        setProblem("");
      },
      (error: unknown) => setProblem(wordsOf(error)),
    );
  }, []);
  useEffect(ask, [ask]);
  return { tokens, problem, ask };
}
