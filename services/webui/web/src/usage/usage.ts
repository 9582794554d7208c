import { request } from "../api/client";
import type { UsageReport, UsageSum } from "../api/types.generated";
import { cost, money } from "../ui/format";

export type By = UsageReport["by"];

export const BY: readonly { by: By; label: string; column: string }[] = [
  { by: "day", label: "Day", column: "Day (UTC)" },
  { by: "agent", label: "Agent", column: "Agent" },
  { by: "model", label: "Model", column: "Model" },
  { by: "user", label: "User", column: "User" },
];

/** How far back; null: all that is known. */
export const RANGES: readonly { days: number | null; label: string }[] = [
  { days: 1, label: "Today" },
  { days: 7, label: "Last 7 days" },
  { days: 30, label: "Last 30 days" },
  { days: 365, label: "Last 12 months" },
  { days: null, label: "All" },
];

const DAY_MS = 86_400_000;

/** The first UTC day of a range that ends today. */
export function firstDay(days: number, now: number): string {
  return new Date(now - (days - 1) * DAY_MS).toISOString().slice(0, 10);
}

export async function readUsage(by: By, days: number | null, signal: AbortSignal): Promise<UsageReport> {
  const search = new URLSearchParams({ by });
  if (days !== null) search.set("from", firstDay(days, Date.now()));
  return (await (await request("GET", `/api/usage?${search.toString()}`, undefined, signal)).json()) as UsageReport;
}

/** Days with the newest first; else what cost most first, and then what had most tokens. */
export function inOrder(by: By, rows: readonly UsageSum[]): UsageSum[] {
  if (by === "day") return [...rows].sort((a, b) => b.name.localeCompare(a.name));
  return [...rows].sort((a, b) => b.cost_usd - a.cost_usd || tokens(b) - tokens(a) || a.name.localeCompare(b.name));
}

const tokens = (row: UsageSum): number => row.input_tokens + row.output_tokens;

const WITHOUT_NAME: Record<By, string> = {
  day: "Unknown day",
  agent: "No agent",
  model: "Unknown model",
  user: "No one in particular",
};

/** What a row is called: days as people write them. */
export function labelOf(by: By, name: string): string {
  if (!name) return WITHOUT_NAME[by];
  if (by !== "day") return name;
  const options = { weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: "UTC" } as const;
  return new Date(`${name}T00:00:00Z`).toLocaleDateString(undefined, options);
}

/** What it cost: `?` stands for replies whose price is not known, and for requests of which no answer came. */
export function costOf(row: UsageSum): string {
  const known = cost(row) || "$0";
  return row.unknown_usd > 0 ? `${known} + up to ${money(row.unknown_usd)}` : known;
}

/** The same in words, exactly. */
export function costInWords(row: UsageSum): string {
  const parts = [`$${row.cost_usd.toFixed(4)} of replies with a known price`];
  if (row.unpriced_replies > 0) parts.push(`${row.unpriced_replies} of ${row.replies} replies have no known price`);
  if (row.unknown_usd > 0) parts.push(`at most $${row.unknown_usd.toFixed(4)} of requests that were cut off`);
  return parts.join("; ");
}

/** Part of the largest known cost among the rows, from 0 to 1. */
export function shareOf(row: UsageSum, rows: readonly UsageSum[]): number {
  const most = Math.max(...rows.map((each) => each.cost_usd));
  return most > 0 ? row.cost_usd / most : 0;
}
