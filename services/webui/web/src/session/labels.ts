import { api } from "../api/client";
import { complain } from "../ui/toast";
import { move, stopsRun } from "./branching";
import type { LiveSession } from "./liveSession";
import { isOnBranch, latestBelow } from "./tree";

export const MOST_LABEL_CHARS = 200;

/** Names an entry; an empty label takes the name away. The log tells when it is so. */
export function setLabel(session: LiveSession, entry: string, label: string): void {
  api
    .label(session.id, { entry, label: label.trim() })
    .catch((error: unknown) => complain("Could not label it", error));
}

/** Goes to what has a label, also on another branch: then to where that branch was left. Whether it got there. */
export async function goToEntry(session: LiveSession, entry: string): Promise<boolean> {
  const { view } = session.store.get();
  if (isOnBranch(view.log, view.inherited, entry)) return true;
  const end = latestBelow(view.log, view.inherited, entry);
  if (end === null) {
    complain("Could not go there", "load the earlier messages first.");
    return false;
  }
  const wish = { action: "navigate", entry: end } as const;
  if (!stopsRun(session.store.get())) return move(session, wish);
  session.store.set((state) => ({ ...state, asksToMove: wish }));
  return false;
}
