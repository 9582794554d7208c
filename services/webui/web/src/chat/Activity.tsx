import { useState } from "react";
import type { RunEndEntry } from "../api/types";
import type { LiveSession, SessionState } from "../session/liveSession";
import { statusOf } from "../session/status";
import { useStore } from "../session/store";
import { stopRun } from "../sessions/actions";
import { Button } from "../ui/Button";
import { elapsed } from "../ui/format";
import { complain } from "../ui/toast";
import { Spinner } from "../ui/Spinner";
import { useNow } from "../ui/useNow";
import styles from "./Activity.module.css";

/** The last line while a run works and nothing else on the page shows it. */
export function Activity({ session }: { session: LiveSession }) {
  const quiet = useStore(session.store, isQuiet);
  const retry = useStore(session.store, (state) => state.view.retry);
  const since = useStore(session.store, (state) => state.view.run?.since ?? state.outbox[0]?.at ?? 0);
  const waiting = useStore(session.store, (state) => state.view.run === null);
  const parked = useStore(session.store, (state) => state.view.parked);
  const compacting = useStore(session.store, (state) => state.view.compacting);
  const leaving = useStore(session.store, (state) => state.view.leaving !== null);
  const now = useNow(quiet || retry !== null);

  if (retry) {
    const left = Math.max(0, Math.ceil((retry.at + retry.delayS * 1000 - now) / 1000));
    return (
      <p className={`${styles.line} ${styles.retry}`}>
        <Spinner /> The model did not answer: {retry.error}. Asking again{left > 0 ? ` in ${left} s` : ""} (attempt{" "}
        {retry.attempt}).
      </p>
    );
  }
  if (parked?.outcome === "waiting_provider") return <Waiting session={session} parked={parked} />;
  if (parked?.outcome === "requires_action")
    return (
      <p className={styles.line} role="status">
        Waiting for the results of a client’s tools
      </p>
    );
  if (leaving)
    return (
      <p className={styles.line} role="status">
        <Spinner /> Summarising the branch that is left
      </p>
    );
  if (compacting) return <Summarising id={session.id} since={compacting.since} />;
  if (!quiet) return null;
  const passed = now - since;
  return (
    <p className={styles.line}>
      <Spinner /> {waiting && passed > 3000 ? "Stored. Waiting for an agent that is free" : "Working"}
      {passed > 1500 && <span>{elapsed(passed)}</span>}
    </p>
  );
}

/** A summary that a person asked for, while it is written. What is said meanwhile is kept, and comes after it. */
function Summarising({ id, since }: { id: string; since: number }) {
  const now = useNow(true);
  const [stopping, setStopping] = useState(false);
  const passed = since > 0 ? now - since : 0;
  return (
    <p className={styles.line} role="status">
      <Spinner /> Summarising earlier messages for the model
      {passed > 1500 && <span aria-hidden>{elapsed(passed)}</span>}
      <Button
        tone="quiet"
        disabled={stopping}
        onClick={() => {
          setStopping(true);
          stopRun(id);
        }}
      >
        {stopping ? "Stopping" : "Stop"}
      </Button>
    </p>
  );
}

/** A run that is parked until its provider is asked again: when that is, and a way to do it now. */
function Waiting({ session, parked }: { session: LiveSession; parked: RunEndEntry }) {
  const now = useNow(true);
  const left = Math.max(0, Math.ceil(((parked.retry_at ?? 0) - now) / 1000));
  const tryNow = () => {
    session.retry().catch((error: unknown) => complain("Could not retry the provider", error));
  };
  return (
    <p className={`${styles.line} ${styles.retry}`} data-waiting="provider">
      The provider does not answer: {parked.error}. Asking again{left > 0 ? ` in ${elapsed(left * 1000)}` : " now"}.{" "}
      <Button onClick={tryNow}>Try now</Button>
    </p>
  );
}

/** Whether a run works and neither words nor a tool show it. */
function isQuiet(state: SessionState): boolean {
  if (statusOf(state) !== "running" || state.view.retry) return false;
  if (state.view.partial && state.view.partial.message.content.length > 0) return false;
  const last = state.view.items.at(-1);
  if (last?.kind === "hook_calls") return last.entry.calls.every((call) => state.view.calls[call.call_id]?.outcome);
  if (last?.kind !== "assistant") return true;
  return last.message.content.every((block) => block.type !== "tool_call" || state.view.calls[block.call_id]?.outcome);
}
