import { useEffect, useState } from "react";
import { api } from "../api/client";
import type { RunOutcome } from "../api/types";
import type { LiveSession } from "../session/liveSession";
import { useRights } from "../session/open";
import { useStore } from "../session/store";
import { Button } from "../ui/Button";
import { complain } from "../ui/toast";
import { NameModel } from "./NameModel";
import styles from "./RunEnd.module.css";

const PATIENCE_MS = 10_000; // an agent that has not begun by then may be asked again

/** What can be done about a run that ended without an answer. */
export function GoOn({ session, outcome }: { session: LiveSession; outcome: RunOutcome }) {
  const free = useStore(session.store, ({ view, outbox }) => view.run === null && outbox.length === 0);
  const model = useStore(session.store, (state) => state.view.model ?? state.meta?.model ?? "");
  const { write } = useRights(session);
  const [asked, setAsked] = useState(false);
  const [naming, setNaming] = useState(false);
  useEffect(() => {
    if (!asked) return;
    const timer = setTimeout(() => setAsked(false), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [asked]);

  const retry = (other?: string): void => {
    setAsked(true);
    const changed = other ? api.updateSession(session.id, { model: other }) : Promise.resolve();
    changed
      .then(() => session.retry())
      .catch((error: unknown) => {
        setAsked(false);
        complain("Could not try again", error);
      });
  };
  const failed = outcome === "failed";
  if (!write) return null;
  return (
    <div className={styles.ways}>
      <Button disabled={!free || asked} onClick={() => retry()}>
        {failed ? "Try again" : "Go on"}
      </Button>
      {failed && (
        <Button disabled={!free || asked} onClick={() => setNaming(true)}>
          Change model
        </Button>
      )}
      {naming && (
        <NameModel model={model} action="Use it and try again" onName={retry} onClose={() => setNaming(false)} />
      )}
    </div>
  );
}
