import { notReached, reached } from "./connection";

/**
 * The half of the login that only this origin has. Browsers send cookies to every port of a host name, so the
 * cookie alone counts for nothing: each request carries this value beside it. All tabs share it.
 */
const PLACE = "fairlead.page";
const HEADER = "x-fairlead-page";
const AGAIN_MS = 1500;
const FOLLOWS_MS = 1000; // a login in another tab sets the cookie first, and the value shortly after

let unsaved = ""; // where the browser lets nobody save anything: it holds until the page is loaded again

function saved(): string {
  try {
    return localStorage.getItem(PLACE) ?? unsaved;
  } catch {
    return unsaved;
  }
}

function save(value: string): void {
  unsaved = value;
  try {
    if (value) localStorage.setItem(PLACE, value);
    else localStorage.removeItem(PLACE);
  } catch {
    // It is kept in `unsaved`.
  }
}

/** Keeps what the answer to a login carries. */
export function keepLogin(answer: Response): void {
  save(answer.headers.get(HEADER) ?? "");
}

/** Forgets the login on this origin. */
export function forgetLogin(): void {
  save("");
}

/** Calls `listener` when another tab signed in or out. */
export function onOtherTab(listener: () => void): () => void {
  const hear = (event: StorageEvent): void => {
    if (event.key === PLACE || event.key === null) listener();
  };
  window.addEventListener("storage", hear);
  return () => window.removeEventListener("storage", hear);
}

/**
 * Takes over the value that a login link left in the address, which it leaves at once. Any page can open this
 * one with a value of its own choice: it is kept only if the gateway accepts it beside the cookie.
 */
export async function takeLogin(): Promise<void> {
  const value = /^#page=([A-Za-z0-9_-]{16,128})$/.exec(location.hash)?.[1];
  if (!value) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  for (;;) {
    try {
      const answer = await fetch("/api/me", { headers: { [HEADER]: value }, signal: AbortSignal.timeout(10_000) });
      reached();
      if (answer.ok) save(value);
      if (answer.status < 500 && answer.status !== 429) return;
    } catch {
      notReached(); // the link is used up, so the value is worth waiting for
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** `fetch` with the value of this origin; after a 401 once more if another tab has just signed in again. */
export async function fetchAsPage(path: string, init: RequestInit): Promise<Response> {
  const sent = saved();
  const answer = await fetch(path, withValue(init, sent));
  if (answer.status !== 401 || !sent || path === "/api/login") return answer;
  if (saved() === sent) await changed(init.signal ?? null);
  const value = saved();
  return value && value !== sent ? fetch(path, withValue(init, value)) : answer;
}

function withValue(init: RequestInit, value: string): RequestInit {
  const headers = new Headers(init.headers);
  if (value) headers.set(HEADER, value);
  return { ...init, headers, credentials: "same-origin" };
}

function changed(signal: AbortSignal | null): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, FOLLOWS_MS);
    const forget = onOtherTab(finish);
    function finish(): void {
      clearTimeout(timer);
      forget();
      signal?.removeEventListener("abort", finish);
      resolve();
    }
    signal?.addEventListener("abort", finish);
  });
}
