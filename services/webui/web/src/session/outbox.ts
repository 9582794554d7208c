import { ApiError, type Attachment } from "../api/client";
import type { Entry, SendKind } from "../api/types";

/** What one message asks for instead of what its session has. */
export interface PromptChoices {
  model?: string | null | undefined;
  thinking?: string | null | undefined;
}

/** The same in words; empty: nothing. */
export function saysOf({ model, thinking }: PromptChoices): string {
  return [model, thinking && `thinking ${thinking}`].filter(Boolean).join(" · ");
}

/** Something the person said that the log does not show yet. */
export interface Outgoing {
  key: string;
  kind: SendKind;
  text: string;
  attachments: Attachment[];
  choices?: PromptChoices;
  /** stored: the gateway has its acknowledgement; refused: it will not be sent again by itself. */
  state: "sending" | "stored" | "refused";
  problem: string | null;
  /** Where the gateway stored it. */
  seq: number | null;
  at: number;
}

/** A random key that makes sending again harmless. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(15));
  return Array.from(bytes, (byte) => (byte % 36).toString(36)).join("") + Date.now().toString(36);
}

/** `outbox` without what `entry` shows that the log has. */
export function settle(outbox: readonly Outgoing[], entry: Entry): readonly Outgoing[] {
  if (outbox.length === 0) return outbox;
  const keys = keysOf(entry);
  const consumed = entry.cursor ?? 0;
  const left = outbox.filter((out) => !keys.includes(out.key) && !(out.seq !== null && out.seq <= consumed));
  return left.length === outbox.length ? outbox : left;
}

function keysOf(entry: Entry): readonly string[] {
  switch (entry.type) {
    case "message":
      return entry.message.role === "user" ? (entry.message.keys ?? []) : [];
    case "queued":
      return entry.key ? [entry.key] : [];
    case "dropped":
    case "run_end":
      return entry.keys ?? [];
    default:
      return [];
  }
}

const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15_000];

/** Repeats `send` until it is answered; throws what the gateway refuses for good. */
export async function persistently<T>(send: () => Promise<T>, onProblem: (text: string) => void): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof ApiError) || !error.passing) throw error;
      onProblem(error.message);
      await new Promise((resolve) => setTimeout(resolve, WAITS_MS[Math.min(attempt, WAITS_MS.length - 1)]));
    }
  }
}

const place = (session: string): string => `fairlead.outbox.${session}`;

/** What was not acknowledged when the page was left; sent again with the same keys. */
export function restoreOutbox(session: string): Outgoing[] {
  try {
    return JSON.parse(localStorage.getItem(place(session)) ?? "[]") as Outgoing[];
  } catch {
    return [];
  }
}

/** Keeps what is not acknowledged yet over a reload. Attachments are too large for that and are left out. */
export function keepOutbox(session: string, outbox: readonly Outgoing[]): void {
  const open = outbox.filter((out) => out.state === "sending" && out.attachments.length === 0);
  try {
    if (open.length > 0) localStorage.setItem(place(session), JSON.stringify(open));
    else localStorage.removeItem(place(session));
  } catch {
    // Private windows may have no storage: then a reload before the acknowledgement loses the draft.
  }
}
