import { request } from "../api/client";

export type Schedule =
  | { kind: "at"; atMs: number }
  | { kind: "every"; everyMs: number; anchorMs?: number }
  | { kind: "cron"; expr: string; tz?: string };

export type Payload =
  | { kind: "systemEvent"; text: string }
  | { kind: "agentTurn"; message: string; agent?: string; model?: string; deliver?: boolean };

export interface Job {
  id: string;
  name: string;
  description?: string;
  enabled: boolean;
  schedule: Schedule;
  payload: Payload;
  sessionTarget: "main" | "isolated";
  wakeMode: "now" | "next-heartbeat";
  createdBy?: { sender?: string; session?: string };
  state?: {
    nextRunAtMs?: number;
    lastRunAtMs?: number;
    lastStatus?: "ok" | "error" | "skipped";
    lastError?: string;
    running?: number;
    consecutiveFailures?: number;
  };
}

export interface Preview {
  words: string;
  nextRunAtMs: number[];
  local: string[];
  tz: string;
  warnings: string[];
}

export interface Run {
  jobId: string;
  slot: string;
  status: "queued" | "running" | "retrying" | "ok" | "error" | "skipped";
  dueAtMs?: number;
  firedAtMs?: number;
  attempt?: number;
  session?: string;
  error?: string;
  durationMs?: number;
  costUsd?: number;
  summary?: string;
  delivery?: { channel: string; status?: string; error?: string };
}

export interface Status {
  enabled: boolean;
  paused: boolean;
  jobs: number;
  enabledJobs: number;
  nextRunAtMs: number | null;
  running: number;
  queued: number;
  maxConcurrentRuns: number;
  leader: string | null;
}

export type When = "at" | "every" | "cron";

/** What the editor holds: the schedule in words, as people write it. */
export interface Draft {
  name: string;
  when: When;
  text: string;
  tz: string;
  what: "systemEvent" | "agentTurn";
  message: string;
  agent: string;
  wakeNow: boolean;
  deliver: boolean;
}

export const EXAMPLES: Readonly<Record<When, string>> = { at: "in 20 minutes", every: "1h", cron: "30 7 * * 1-5" };

export function emptyDraft(tz: string): Draft {
  return {
    name: "",
    when: "cron",
    text: EXAMPLES.cron,
    tz,
    what: "agentTurn",
    message: "",
    agent: "main",
    wakeNow: true,
    deliver: false,
  };
}

/** The draft that stands for a job as it is. */
export function draftOf(job: Job, tz: string): Draft {
  const { schedule, payload } = job;
  return {
    name: job.name,
    when: schedule.kind,
    text:
      schedule.kind === "at"
        ? new Date(schedule.atMs).toISOString()
        : schedule.kind === "every"
          ? span(schedule.everyMs)
          : schedule.expr,
    tz: schedule.kind === "cron" ? (schedule.tz ?? tz) : tz,
    what: payload.kind,
    message: payload.kind === "systemEvent" ? payload.text : payload.message,
    agent: payload.kind === "agentTurn" ? (payload.agent ?? "main") : "main",
    wakeNow: job.wakeMode === "now",
    deliver: payload.kind === "agentTurn" && payload.deliver === true,
  };
}

/** What the API takes for a draft. */
export function jobOf(draft: Draft): Record<string, unknown> {
  const { when, text, tz } = draft;
  const schedule =
    when === "cron"
      ? { kind: when, expr: text, tz }
      : when === "every"
        ? { kind: when, every: text }
        : { kind: when, at: text, tz };
  const turn = draft.what === "agentTurn";
  return {
    ...(draft.name.trim() ? { name: draft.name.trim() } : {}),
    schedule,
    sessionTarget: turn ? "isolated" : "main",
    wakeMode: turn || draft.wakeNow ? "now" : "next-heartbeat",
    payload: turn
      ? { kind: "agentTurn", message: draft.message, agent: draft.agent, deliver: draft.deliver }
      : { kind: "systemEvent", text: draft.message },
  };
}

/** `90s`, `2h`, `1d`: the largest unit that fits whole. */
export function span(ms: number): string {
  const units: [string, number][] = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
    ["s", 1000],
  ];
  const [unit, size] = units.find(([, each]) => ms > 0 && ms % each === 0) ?? ["ms", 1];
  return `${ms / size}${unit}`;
}

/** The schedule in a few words, for lists. */
export function scheduleText(schedule: Schedule): string {
  if (schedule.kind === "at") return `once, ${new Date(schedule.atMs).toLocaleString()}`;
  if (schedule.kind === "every") return `every ${span(schedule.everyMs)}`;
  return schedule.tz ? `${schedule.expr} (${schedule.tz})` : schedule.expr;
}

export interface Firing {
  job: Job;
  at: number;
}

/** The firings of the next seven days, by day, each day in order. */
export function week(firings: readonly Firing[], from: number): { day: number; firings: Firing[] }[] {
  const first = new Date(from);
  first.setHours(0, 0, 0, 0);
  return Array.from({ length: 7 }, (_, index) => {
    const start = new Date(first);
    start.setDate(first.getDate() + index);
    const end = new Date(first);
    end.setDate(first.getDate() + index + 1);
    const within = firings.filter(({ at }) => at >= start.getTime() && at < end.getTime());
    return { day: start.getTime(), firings: within.sort((a, b) => a.at - b.at) };
  });
}

async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await (await request(method, `/api/cron/${path}`, body)).json()) as T;
}

const one = (id: string): string => `jobs/${encodeURIComponent(id)}`;

export const cron = {
  status: () => json<Status>("GET", "status"),
  list: () => json<{ jobs: Job[] }>("GET", "jobs?all=true&limit=200").then((answer) => answer.jobs),
  get: (id: string, count: number) => json<{ job: Job; preview: Preview | null }>("GET", `${one(id)}?count=${count}`),
  preview: (draft: Draft) => json<Preview>("POST", "preview", { job: jobOf(draft) }),
  add: (draft: Draft, key: string) => json<{ job: Job }>("POST", "jobs", { job: jobOf(draft), key }),
  update: (id: string, patch: Record<string, unknown>) => json<{ job: Job }>("PATCH", one(id), { patch }),
  remove: (id: string) => json("DELETE", one(id)),
  run: (id: string, key: string) =>
    json<{ fired: boolean; reason?: string }>("POST", `${one(id)}/run`, { mode: "force", key }),
  runs: (id: string) => json<{ entries: Run[] }>("GET", `${one(id)}/runs?limit=20`).then((answer) => answer.entries),
  pause: (paused: boolean) => json("POST", "pause", { paused }),
};
