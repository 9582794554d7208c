import { useCallback, useEffect, useState } from "react";
import { isCovered } from "../keys";
import { stopRun } from "../sessions/actions";

const ASK_MS = 4000;
export type Stopping = "no" | "asking" | "stopping";

/** Esc asks first and stops the second time; `now` stops at once. */
export function useStop(id: string, busy: boolean): { state: Stopping; now: () => void } {
  const [state, setState] = useState<Stopping>("no");
  if (!busy && state !== "no") setState("no");

  const now = useCallback((): void => {
    setState("stopping");
    stopRun(id);
  }, [id]);

  useEffect(() => {
    if (state !== "asking") return;
    const timer = setTimeout(() => setState("no"), ASK_MS);
    return () => clearTimeout(timer);
  }, [state]);

  useEffect(() => {
    if (!busy) return;
    const press = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || event.defaultPrevented || isCovered()) return;
      if (state === "asking") now();
      else if (state === "no") setState("asking");
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [busy, state, now]);

  return { state, now };
}
