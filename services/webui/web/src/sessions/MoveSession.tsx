import { useState } from "react";
import { api, ApiError } from "../api/client";
import type { ExecutorInfo } from "../api/status";
import type { Session } from "../api/types";
import { Button } from "../ui/Button";
import { refreshSoon } from "./list";
import styles from "./SessionSettings.module.css";

type Answer = { kind: "moved"; host: string } | { kind: "refused"; why: string; canForce: boolean };

/** Where the session works, and the way to another host. What cannot be done is said with its reason. */
export function MoveSession({
  session,
  infos,
  asked,
}: {
  session: Session;
  /** Null: not known, and once it was asked for: not to be had. */
  infos: readonly ExecutorInfo[] | null;
  asked: boolean;
}) {
  const [host, setHost] = useState("");
  const [moving, setMoving] = useState(false);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const hosts = [...new Set(infos?.filter((info) => !info.draining).map((info) => info.host))].sort();
  const others = hosts.filter((name) => name !== session.host);
  const alone = infos !== null && others.length < (session.host ? 1 : 2);

  const move = (force: boolean): void => {
    setMoving(true);
    setAnswer(null);
    const body = { ...(host ? { host } : {}), ...(force ? { force_empty: true } : {}) };
    api
      .moveSession(session.id, body)
      .then(
        (moved) => {
          setAnswer({ kind: "moved", host: moved.host });
          refreshSoon();
        },
        (error: unknown) =>
          setAnswer({
            kind: "refused",
            why: error instanceof Error ? error.message : String(error),
            canForce: error instanceof ApiError && error.field === "force_empty",
          }),
      )
      .finally(() => setMoving(false));
  };
  return (
    <section className={styles.move} aria-label="Host">
      <h3 className={styles.name}>Host</h3>
      <p>
        {session.host ? (
          <>
            Its workspace is on <strong>{session.host}</strong>.
          </>
        ) : (
          "The session uses its agent’s workspace."
        )}{" "}
        {alone && "No other host is connected."}
      </p>
      {asked && !alone && (
        <div className={styles.moving}>
          <select aria-label="Move to" value={host} onChange={(event) => setHost(event.target.value)}>
            <option value="">The least loaded other host</option>
            {others.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <Button disabled={moving} onClick={() => move(false)}>
            Move
          </Button>
        </div>
      )}
      {answer?.kind === "moved" && <p role="status">It moves to {answer.host}: its next calls run there.</p>}
      {answer?.kind === "refused" && (
        <p className={styles.bad} role="alert">
          {answer.why}
        </p>
      )}
      {answer?.kind === "refused" && answer.canForce && (
        <div className={styles.answers}>
          <Button tone="danger" disabled={moving} onClick={() => move(true)}>
            Move without its files
          </Button>
        </div>
      )}
    </section>
  );
}
