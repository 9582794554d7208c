import type { Session } from "../api/types";
import { createStore } from "../session/store";

const PLACE = "fairlead.seen";

function stored(): Record<string, number> {
  try {
    return JSON.parse(localStorage.getItem(PLACE) ?? "{}") as Record<string, number>;
  } catch {
    return {};
  }
}

/** The last log position of each session that was looked at in this browser. */
export const seen = createStore<Record<string, number>>(stored());

export function markSeen(id: string, seq: number): void {
  if ((seen.get()[id] ?? 0) >= seq) return;
  seen.set((before) => ({ ...before, [id]: seq }));
  const newest = Object.entries(seen.get())
    .sort((a, b) => b[1] - a[1])
    .slice(0, 500);
  localStorage.setItem(PLACE, JSON.stringify(Object.fromEntries(newest)));
}

const SINCE = "fairlead.since";
const since = Number(localStorage.getItem(SINCE) ?? Date.now());
localStorage.setItem(SINCE, String(since));

/** Whether something happened in a session after it was last looked at here. */
export function isUnread(positions: Record<string, number>, session: Session): boolean {
  const position = positions[session.id];
  // What was there before this browser came is not news to it.
  return position === undefined ? session.updated_at > since : (session.news_seq || session.last_seq || 0) > position;
}
