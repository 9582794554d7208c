import { connection, notReached, reached } from "./connection";
import { fetchAsPage } from "./page";
import { SseParser } from "./sse";

const SILENCE_MS = 25_000; // the gateway says something every 10 s
const WAITS_MS = [250, 500, 1000, 2000, 4000, 8000];

export interface Follow<E> {
  /** Address for a log position; asked again at each reconnect that has no event id to resume from. */
  url: () => string;
  /** The event in a message, or null for one that does not matter. */
  read: (data: string) => E | null;
  onEvents: (events: E[]) => void;
  /** The stream cannot be had at all (404, 401, ...). */
  onRefused: (status: number) => void;
}

/**
 * Follows a stream of server-sent events until the returned function is called. A lost connection is
 * opened again with `Last-Event-ID`, so that nothing is missed or said twice.
 */
export function follow<E>({ url, read, onEvents, onRefused }: Follow<E>): () => void {
  const stop = new AbortController();
  let lastId: string | null = null;
  let failures = 0;
  const isStopped = (): boolean => stop.signal.aborted;

  const run = async (): Promise<void> => {
    while (!isStopped()) {
      const status = await readOnce();
      if (isStopped()) return;
      if (status === "ended") failures = 0;
      else if (typeof status === "number" && status < 500 && status !== 408 && status !== 429) {
        if (lastId === null) {
          onRefused(status);
          return;
        }
        lastId = null; // the gateway no longer knows this id: go on from the log
      }
      failures += 1;
      await pause(WAITS_MS[Math.min(failures, WAITS_MS.length) - 1] ?? 8000, stop.signal);
    }
  };

  const readOnce = async (): Promise<number | "ended" | "failed"> => {
    const silence = new AbortController();
    const signal = AbortSignal.any([stop.signal, silence.signal]);
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (lastId !== null) headers["last-event-id"] = lastId;
      const answer = await fetchAsPage(url(), { headers, signal, cache: "no-store" });
      if (!answer.ok || !answer.body) return answer.status;
      reached();
      const parser = new SseParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return "ended";
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        failures = 0;
        deliver(parser.push(value));
      }
    } catch {
      if (!stop.signal.aborted) notReached();
      return "failed";
    } finally {
      clearTimeout(timer);
    }
  };

  const deliver = (messages: { id: string | null; data: string }[]): void => {
    if (messages.length === 0 || stop.signal.aborted) return;
    const events: E[] = [];
    for (const message of messages) {
      const event = read(message.data);
      if (event) events.push(event);
    }
    if (events.length > 0) onEvents(events);
    lastId = messages.at(-1)?.id ?? lastId; // after the fold: an event that could not be taken comes again
  };

  void run();
  return () => stop.abort();
}

/** Waits about `ms`, less if the network or the gateway comes back or the page is looked at again. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, ms * (0.75 + Math.random() / 2));
    const forget = connection.subscribe(() => {
      if (connection.get().downSince === null) finish(); // another request got through
    });
    function finish(): void {
      clearTimeout(timer);
      forget();
      window.removeEventListener("online", finish);
      document.removeEventListener("visibilitychange", finish);
      signal.removeEventListener("abort", finish);
      resolve();
    }
    window.addEventListener("online", finish);
    document.addEventListener("visibilitychange", finish);
    signal.addEventListener("abort", finish);
  });
}
