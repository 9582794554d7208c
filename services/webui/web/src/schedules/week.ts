import type { Job, Preview } from "./jobs";

/** A line of a day: one firing, or many of one job. */
export interface Line {
  job: Job;
  at: number;
  /** Of many: how often, in words. */
  often?: string;
}

export interface Day {
  start: number;
  end: number;
}

/** Of one job in one day: more are one line, or they would bury the others. */
export const MOST_LINES = 4;
const MOST_FIRINGS = 60; // that are asked for at once
const SAMPLE = 8; // of a day of a job that fires more often than that

/** Today and the six days after it, in the time of this browser. */
export function daysFrom(from: number): Day[] {
  const first = new Date(from);
  first.setHours(0, 0, 0, 0);
  const day = (index: number): number => new Date(first).setDate(first.getDate() + index);
  return Array.from({ length: 7 }, (_, index) => ({ start: day(index), end: day(index + 1) }));
}

/**
 * The lines of one job, for each of `days`.
 *
 * `ask` gives the next `count` firings after a moment: once for a job that fires now and then, and once more for
 * each day where the first answer does not reach to the end.
 */
export async function lookAhead(
  job: Job,
  days: readonly Day[],
  ask: (count: number, afterMs: number) => Promise<Preview | null>,
): Promise<Line[][]> {
  const preview = await ask(MOST_FIRINGS, 0);
  const next = preview?.nextRunAtMs ?? [];
  const isWhole = next.length < MOST_FIRINGS || (next.at(-1) ?? 0) >= (days.at(-1)?.end ?? 0);
  const lines: Line[][] = [];
  for (const { start, end } of days) {
    const some = isWhole ? next : ((await ask(SAMPLE, start - 1))?.nextRunAtMs ?? []);
    const within = some.filter((at) => at >= start && at < end);
    lines.push(linesOf(job, within, preview?.words ?? ""));
  }
  return lines;
}

function linesOf(job: Job, firings: readonly number[], words: string): Line[] {
  const [at, second] = firings;
  if (at === undefined || second === undefined || firings.length <= MOST_LINES)
    return firings.map((each) => ({ job, at: each }));
  const gap = second - at;
  const isEven = firings.every((each, index) => index === 0 || each - (firings[index - 1] ?? 0) === gap);
  return [{ job, at, often: isEven ? `every ${interval(gap)}` : words }];
}

/** `10 min`, `2 h`, `90 s`. */
function interval(ms: number): string {
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000} h`;
  return ms % 60_000 === 0 ? `${ms / 60_000} min` : `${ms / 1000} s`;
}
