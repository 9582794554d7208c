import { useCallback, useEffect, useState } from "react";
import { request } from "./client";

/** A list that comes in parts, newest first. */
export interface Paged<T> {
  /** Null: not known yet. */
  items: readonly T[] | null;
  more: boolean;
  busy: boolean;
  problem: string;
  /** Asks for the beginning again. */
  ask: () => void;
  /** Asks for the next part. */
  next: () => void;
}

interface Part<T> {
  path: string;
  items: readonly T[];
  next: number | null;
  /** Whether it was put together from several answers. */
  isLong: boolean;
}

/**
 * The list at `path`, which has its filters; another path is another list.
 * `read` takes its items out of an answer: a function that stays the same. With `everyMs` its beginning is asked
 * for again so often, while nobody reads further down.
 */
export function usePaged<T>(path: string, read: (answer: unknown) => readonly T[], everyMs = 0): Paged<T> {
  const [found, setFound] = useState<Part<T> | null>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const [times, setTimes] = useState(0);
  useEffect(() => {
    const leaving = new AbortController();
    void Promise.resolve().then(() => {
      if (leaving.signal.aborted) return;
      setBusy(true);
      readPart(path, null, read, leaving.signal)
        .then(
          (part) => {
            setFound(part);
            setProblem("");
          },
          (error: unknown) => !leaving.signal.aborted && setProblem(wordsOf(error)),
        )
        .finally(() => !leaving.signal.aborted && setBusy(false));
    });
    return () => leaving.abort();
  }, [path, read, times]);
  const next = (): void => {
    if (busy || found?.next == null) return;
    setBusy(true);
    readPart(path, found.next, read, AbortSignal.timeout(30_000))
      .then(
        (part) =>
          setFound((before) =>
            before?.path === path ? { ...part, items: [...before.items, ...part.items], isLong: true } : before,
          ),
        (error: unknown) => setProblem(wordsOf(error)),
      )
      .finally(() => setBusy(false));
  };
  const ask = useCallback(() => setTimes((before) => before + 1), []);
  const isLong = found?.isLong === true;
  useEffect(() => {
    if (everyMs === 0 || isLong) return;
    const timer = setInterval(() => document.visibilityState === "visible" && ask(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, isLong, ask]);
  const fits = found?.path === path;
  return { items: fits ? found.items : null, more: fits && found.next !== null, busy, problem, ask, next };
}

async function readPart<T>(
  path: string,
  before: number | null,
  read: (answer: unknown) => readonly T[],
  signal: AbortSignal,
): Promise<Part<T>> {
  const at = before === null ? path : `${path}${path.includes("?") ? "&" : "?"}before=${before}`;
  const answer: unknown = await (await request("GET", at, undefined, signal)).json();
  return { path, items: read(answer), next: (answer as { next: number | null }).next, isLong: false };
}

/** A path with the filters that are set. */
export function withFilters(path: string, filters: Readonly<Record<string, string>>): string {
  const set = Object.entries(filters).filter(([, value]) => value !== "");
  return set.length === 0 ? path : `${path}?${new URLSearchParams(set).toString()}`;
}

export const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const HOUR_MS = 3_600_000;
export const SINCE: readonly { label: string; ms: number }[] = [
  { label: "Last hour", ms: HOUR_MS },
  { label: "Last 24 hours", ms: 24 * HOUR_MS },
  { label: "Last 7 days", ms: 168 * HOUR_MS },
  { label: "Last 30 days", ms: 720 * HOUR_MS },
  { label: "Any time", ms: 0 },
];
