import { api } from "../api/client";
import { onNews } from "../api/news";
import type { Session } from "../api/types";
import { createStore } from "../session/store";

const CALM_MS = 60_000; // behind the news, should one get lost
const SOON_MS = 400;
const FIRST_MS = 1000; // so long the first list waits for the stream of news

export interface SessionList {
  sessions: readonly Session[];
  loaded: boolean;
  next: string | null;
}

export const sessionList = createStore<SessionList>({ sessions: [], loaded: false, next: null });

/** Whether sessions that were made for one API call are listed too. */
export const withCalls = createStore(false);

/** Whether archived sessions are listed, and no others. */
export const archivedOnly = createStore(false);

/** Whose sessions are listed; empty: all that one may see. */
export type Whose = "" | "mine" | "shared";
export const whose = createStore<Whose>("");

let timer: ReturnType<typeof setTimeout> | undefined;
let soon: ReturnType<typeof setTimeout> | undefined;
let again = false;
const deleted = new Set<string>();
let asking = false;
let watching = false;

/** Keeps the list fresh while the page is open: the gateway says when it has changed. */
export function watchSessions(): () => void {
  watching = true;
  // The stream of news says welcome first: asked for after that, once, the list misses nothing.
  const first = setTimeout(() => void refreshSessions(), FIRST_MS);
  const forget = onNews("session", () => {
    clearTimeout(first);
    if (sessionList.get().loaded) refreshSoon();
    else void refreshSessions();
  });
  const seen = (): void => void (document.visibilityState === "visible" && refreshSessions());
  document.addEventListener("visibilitychange", seen);
  window.addEventListener("online", seen);
  window.addEventListener("offline", seen); // no network may still mean a gateway on this machine: ask
  return () => {
    watching = false;
    forget();
    clearTimeout(first);
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
    window.removeEventListener("online", seen);
    window.removeEventListener("offline", seen);
  };
}

/**
 * Asks for the list in a moment, when the gateway's index knows what has just happened; of what happens until
 * then it asks once more, so that a lively session is listed as soon as a calm one.
 */
export function refreshSoon(): void {
  if (soon !== undefined) {
    again = true;
    return;
  }
  soon = setTimeout(() => {
    soon = undefined;
    void refreshSessions();
    if (again) refreshSoon();
    again = false;
  }, SOON_MS);
}

/** Asks for the list now; several calls at once are one request. */
export async function refreshSessions(): Promise<void> {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  const asked = JSON.stringify(sources());
  try {
    const page = without(await api.sessions({ limit: 100, ...sources() }));
    if (asked !== JSON.stringify(sources())) return; // what is listed was changed meanwhile
    sessionList.set((list) => {
      const whole = page.next !== null || list.sessions.length === page.sessions.length;
      const same =
        list.loaded &&
        whole &&
        JSON.stringify(list.sessions.slice(0, page.sessions.length)) === JSON.stringify(page.sessions);
      if (same) return list;
      const oldest = page.sessions.at(-1);
      const fresh = new Set(page.sessions.map((session) => session.id));
      const further =
        page.next && oldest
          ? list.sessions.filter((s) => !fresh.has(s.id) && !s.pinned && s.updated_at <= oldest.updated_at)
          : [];
      return {
        sessions: [...page.sessions, ...further],
        loaded: true,
        next: further.length > 0 ? list.next : page.next,
      };
    });
  } catch {
    // The connection says so; the next round asks again.
  } finally {
    asking = false;
    plan();
    if (asked !== JSON.stringify(sources())) void refreshSessions();
  }
}

/** Older sessions, below those that are listed. */
export async function loadMoreSessions(): Promise<void> {
  const { next } = sessionList.get();
  if (!next) return;
  const page = without(await api.sessions({ limit: 100, before: next, ...sources() }));
  sessionList.set((list) => {
    const known = new Set(list.sessions.map((session) => session.id));
    return { ...list, sessions: [...list.sessions, ...page.sessions.filter((s) => !known.has(s.id))], next: page.next };
  });
}

/** Changes what is listed until the gateway says the same. */
export function patchSession(id: string, part: Partial<Session>): void {
  sessionList.set((list) => ({ ...list, sessions: list.sessions.map((s) => (s.id === id ? { ...s, ...part } : s)) }));
}

/** Lists it no more, because it is not of those that are listed now. */
export function leaveOut(id: string): void {
  sessionList.set((list) => ({ ...list, sessions: list.sessions.filter((s) => s.id !== id) }));
}

/** Lists it no more; the gateway may still do so for some seconds. */
export function forgetSession(id: string): void {
  deleted.add(id);
  sessionList.set((list) => ({ ...list, sessions: list.sessions.filter((s) => s.id !== id) }));
}

/** Takes a session that could not be deleted back into the list. */
export function rememberSession(id: string): void {
  deleted.delete(id);
  void refreshSessions();
}

/** Lists sessions that were made for one API call too, or no more. */
export function toggleCalls(): void {
  withCalls.set((now) => !now);
  listAgain();
}

/** Lists archived sessions instead of the others, or no more. */
export function toggleArchived(): void {
  archivedOnly.set((now) => !now);
  listAgain();
}

export function listThose(of: Whose): void {
  whose.set(() => of);
  listAgain();
}

function listAgain(): void {
  sessionList.set(() => ({ sessions: [], loaded: false, next: null }));
  void refreshSessions();
}

/** Which sessions the gateway is asked for. */
export function sources(): { source?: "all"; archived?: "true"; owner?: "mine" | "shared" } {
  const owner = whose.get();
  return {
    ...(withCalls.get() && { source: "all" }),
    ...(archivedOnly.get() && { archived: "true" }),
    ...(owner && { owner }),
  };
}

function without<P extends { sessions: Session[] }>(page: P): P {
  return { ...page, sessions: page.sessions.filter((session) => !deleted.has(session.id)) };
}

function plan(): void {
  clearTimeout(timer);
  if (!watching || document.visibilityState !== "visible") return;
  timer = setTimeout(() => void refreshSessions(), CALM_MS);
}
