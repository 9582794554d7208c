import { may, me, type Rights, rightsTo } from "../api/rights";
import { refreshSoon, sessionList } from "../sessions/list";
import { LiveSession } from "./liveSession";
import { useStore } from "./store";

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

/** What may be done with the session that is shown; nothing is taken away while that is not known yet. */
export function useRights(session: LiveSession): Rights & { known: boolean } {
  const who = useStore(me, (state) => state);
  const meta = useStore(session.store, (state) => state.meta);
  const listed = useStore(sessionList, (list) => list.sessions.find((one) => one.id === session.id));
  const about = meta ?? listed;
  if (about || who?.role === "admin") return { ...rightsTo(who, about ?? {}), known: true };
  return { write: may(who, "write"), approve: may(who, "approve"), manage: false, known: false };
}

export function forgetLiveSession(id: string): void {
  sessions.delete(id);
}
