import { refreshSoon } from "../sessions/list";
import { LiveSession } from "./liveSession";

const KEPT = 6;
const sessions = new Map<string, LiveSession>();

/** The session with this id; the last few stay in memory, so that going back to one is instant. */
export function liveSession(id: string): LiveSession {
  const session = sessions.get(id) ?? new LiveSession(id, refreshSoon);
  sessions.delete(id);
  sessions.set(id, session);
  for (const [oldest, other] of sessions) {
    if (sessions.size <= KEPT) break;
    if (other.store.get().outbox.every((out) => out.state !== "sending")) sessions.delete(oldest);
    else break;
  }
  return session;
}

export function forgetLiveSession(id: string): void {
  sessions.delete(id);
}
