import { follow } from "./events";

/** `rights`: of this login; told whenever the stream begins, since a change of rights ends it. */
export type Kind = "session" | "approval" | "job" | "executor" | "rights";

interface Hint {
  kind: Kind | "all";
  id: string;
}

type Listener = (ids: readonly string[]) => void;

const listeners = new Map<Kind, Set<Listener>>();
let close: (() => void) | null = null;

/**
 * Calls `listener` when something of this kind has changed, with its ids; an empty id means: look at everything.
 * It is also called when the stream is there again after it was lost. One stream serves the whole page, and only
 * while it is looked at: a browser has six connections to a gateway, over all tabs.
 */
export function onNews(kind: Kind, listener: Listener): () => void {
  const own = listeners.get(kind) ?? new Set();
  listeners.set(kind, own.add(listener));
  adjust();
  return () => {
    own.delete(listener);
    adjust();
  };
}

document.addEventListener("visibilitychange", adjust);

function adjust(): void {
  const wanted = document.visibilityState === "visible" && [...listeners.values()].some((set) => set.size > 0);
  if (wanted) close ??= follow<Hint>({ url: () => "/api/news", read: readHint, onEvents: tell, onRefused: lost });
  else {
    close?.();
    close = null;
  }
}

/** The hint in a message of the stream, or null for one that this version does not know. */
export function readHint(data: string): Hint | null {
  const event = JSON.parse(data) as { type?: unknown; kind?: Kind; id?: unknown };
  if (event.type === "welcome") return { kind: "all", id: "" };
  if (event.type !== "changed" || !event.kind) return null;
  return { kind: event.kind, id: typeof event.id === "string" ? event.id : "" };
}

function tell(hints: readonly Hint[]): void {
  for (const [kind, own] of listeners) {
    const ids = hints.filter((hint) => hint.kind === kind || hint.kind === "all").map((hint) => hint.id);
    if (ids.length > 0) for (const listener of [...own]) listener(ids);
  }
}

function lost(): void {
  close = null;
  tell([{ kind: "rights", id: "" }]); // who asks finds out whether the login has ended
}
