import { useEffect } from "react";
import { positionIn } from "../runs/outcomes";
import type { LiveSession } from "../session/liveSession";
import { complain } from "../ui/toast";
import { showMessage } from "./showMessage";

const MOST_PAGES = 50;

/** Goes to the place in the log that the address names, once: earlier messages are loaded as far as need be. */
export function usePlace(session: LiveSession, ready: boolean): void {
  useEffect(() => {
    const seq = positionIn(location.hash);
    if (!ready || seq === null) return;
    let gone = false;
    const go = async (): Promise<void> => {
      history.replaceState(history.state, "", location.pathname);
      for (let page = 0; page < MOST_PAGES && firstSeq(session) > seq; page += 1)
        if (gone || !(await session.loadOlder(1000))) break;
      // The page follows the log by frames: what was just loaded may not be drawn yet.
      requestAnimationFrame(() =>
        requestAnimationFrame(() => {
          const id = lastShown(session, seq);
          if (!gone && !(id && showMessage(id)))
            complain("Could not go to that place", "it is on another branch, or it is not shown.");
        }),
      );
    };
    void go();
    return () => {
      gone = true;
    };
  }, [session, ready]);
}

const firstSeq = (session: LiveSession): number => session.store.get().view.log[0]?.seq ?? 0;

/** Id of the last message that is shown at or before this place. */
function lastShown(session: LiveSession, seq: number): string | undefined {
  const { log, items } = session.store.get().view;
  const until = new Set(log.filter((entry) => entry.seq <= seq).map((entry) => entry.id));
  const said = items.filter((item) => item.kind === "user" || item.kind === "assistant");
  return said.findLast((item) => until.has(item.id))?.id;
}
