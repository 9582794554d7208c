import { expect, test } from "vitest";
import { draftOf, emptyDraft, type Job, jobOf, span, week } from "./jobs";

const job: Job = {
  id: "j1",
  name: "Tea",
  enabled: true,
  schedule: { kind: "every", everyMs: 7_200_000 },
  payload: { kind: "systemEvent", text: "tea" },
  sessionTarget: "main",
  wakeMode: "now",
};

test("a draft of a job makes the same job again", () => {
  const made = jobOf(draftOf(job, "UTC"));
  expect(made).toEqual({
    name: "Tea",
    schedule: { kind: "every", every: "2h" },
    sessionTarget: "main",
    wakeMode: "now",
    payload: { kind: "systemEvent", text: "tea" },
  });
});

test("a task runs isolated, as its agent", () => {
  const made = jobOf({ ...emptyDraft("Europe/Berlin"), message: "look" });
  expect(made).toMatchObject({
    sessionTarget: "isolated",
    schedule: { kind: "cron", expr: "30 7 * * 1-5", tz: "Europe/Berlin" },
    payload: { kind: "agentTurn", message: "look", agent: "main" },
  });
  expect(made).not.toHaveProperty("name");
});

test("spans are said in the largest whole unit", () => {
  expect([span(86_400_000), span(5_400_000), span(90_000), span(1500)]).toEqual(["1d", "90m", "90s", "1500ms"]);
});

test("a week has seven days, each with its firings in order", () => {
  const from = new Date(2026, 2, 27, 15).getTime(); // the clocks change in this week in many places
  const late = new Date(2026, 2, 29, 20).getTime();
  const early = new Date(2026, 2, 29, 1).getTime();
  const days = week(
    [
      { job, at: late },
      { job, at: early },
      { job, at: from + 30 * 86_400_000 },
    ],
    from,
  );
  expect(days).toHaveLength(7);
  expect(days.map((day) => new Date(day.day).getDate())).toEqual([27, 28, 29, 30, 31, 1, 2]);
  expect(days[2]?.firings.map((firing) => firing.at)).toEqual([early, late]);
  expect(days.flatMap((day) => day.firings)).toHaveLength(2);
});
