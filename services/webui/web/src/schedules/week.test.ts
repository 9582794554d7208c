import { expect, test } from "vitest";
import type { Job, Preview } from "./jobs";
import { daysFrom, lookAhead } from "./week";

const job: Job = {
  id: "j1",
  name: "Look",
  enabled: true,
  schedule: { kind: "cron", expr: "*/10 * * * *" },
  payload: { kind: "systemEvent", text: "look" },
  sessionTarget: "main",
  wakeMode: "now",
};
const MINUTE = 60_000;
const from = new Date(2026, 2, 27, 15, 5).getTime(); // the clocks change in this week in many places
const days = daysFrom(from);

/** A scheduler that knows these firings. */
const knowing =
  (firings: readonly number[], words = "often") =>
  (count: number, afterMs: number): Promise<Preview> =>
    Promise.resolve({
      words,
      nextRunAtMs: firings.filter((at) => at > Math.max(from, afterMs)).slice(0, count),
      local: [],
      tz: "UTC",
      warnings: [],
    });

const every = (minutes: number): number[] =>
  Array.from({ length: (9 * 1440) / minutes }, (_, index) => (days[0]?.start ?? 0) + index * minutes * MINUTE);

test("a week has seven days, from midnight to midnight whatever the clocks do", () => {
  expect(days.map((day) => new Date(day.start).getDate())).toEqual([27, 28, 29, 30, 31, 1, 2]);
  expect(days.every((day) => new Date(day.end).getHours() === 0)).toBe(true);
});

test("a job that fires all the time has one line in each of the seven days", async () => {
  const lines = await lookAhead(job, days, knowing(every(10)));
  expect(lines.map((day) => day.length)).toEqual([1, 1, 1, 1, 1, 1, 1]);
  expect(lines[0]?.[0]).toMatchObject({ at: new Date(2026, 2, 27, 15, 10).getTime(), often: "every 10 min" });
  expect(lines[6]?.[0]).toMatchObject({ at: days[6]?.start, often: "every 10 min" });
});

test("a job that fires now and then has its firings in their days, and is asked about once", async () => {
  const late = new Date(2026, 2, 29, 20).getTime();
  const early = new Date(2026, 2, 29, 1).getTime();
  let asked = 0;
  const ask = knowing([early, late, from + 30 * 86_400_000]);
  const lines = await lookAhead(job, days, (count, after) => {
    asked += 1;
    return ask(count, after);
  });
  expect(lines.map((day) => day.map((line) => line.at))).toEqual([[], [], [early, late], [], [], [], []]);
  expect(asked).toBe(1);
});

test("firings at uneven times are told in the words of the scheduler", async () => {
  const uneven = every(60).flatMap((at) => [at, at + 10 * MINUTE]);
  const lines = await lookAhead(job, days, knowing(uneven, "at minute 0 and 10"));
  expect(lines[3]).toHaveLength(1);
  expect(lines[3]?.[0]?.often).toBe("at minute 0 and 10");
});
