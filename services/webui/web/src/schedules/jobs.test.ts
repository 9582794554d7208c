import { expect, test } from "vitest";
import { draftOf, emptyDraft, type Job, jobOf, labels, moment, span } from "./jobs";

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

test("jobs of the same name carry the end of their id, others their name alone", () => {
  const jobs = [
    { ...job, id: "01hzzzzzzzzzzzzzzzzzaaaaaa" },
    { ...job, id: "01hzzzzzzzzzzzzzzzzzbbbbbb" },
    { ...job, id: "01hzzzzzzzzzzzzzzzzzcccccc", name: "Coffee" },
  ];
  expect([...labels(jobs).values()]).toEqual(["Tea (…aaaaaa)", "Tea (…bbbbbb)", "Coffee"]);
});

test("a task runs isolated, as its agent", () => {
  const made = jobOf({ ...emptyDraft("Europe/Berlin"), message: "look" });
  expect(made).toMatchObject({
    sessionTarget: "isolated",
    schedule: { kind: "cron", expr: "30 7 * * *", tz: "Europe/Berlin" },
    payload: { kind: "agentTurn", message: "look", agent: "main" },
  });
  expect(made).not.toHaveProperty("name");
});

test("spans are said in the largest whole unit", () => {
  expect([span(86_400_000), span(5_400_000), span(90_000), span(1500)]).toEqual(["1d", "90m", "90s", "1500ms"]);
});

test.each([
  ["5 22 * * *", { when: "daily", time: "22:05" }],
  ["30 7 * * 1-5", { when: "weekdays", time: "07:30" }],
  ["0 9 * * 0", { when: "weekly", time: "09:00", weekday: "0" }],
  ["*/10 * * * *", { when: "cron", text: "*/10 * * * *" }],
  ["0 9 1 * *", { when: "cron" }],
])("the editor shows %s as people say it, and makes the same of it", (expr, shown) => {
  const draft = draftOf({ ...job, schedule: { kind: "cron", expr, tz: "Europe/Berlin" } }, "UTC");
  expect(draft).toMatchObject(shown);
  expect(jobOf(draft)).toMatchObject({ schedule: { kind: "cron", expr, tz: "Europe/Berlin" } });
});

test("a moment is told in the zone of the job", () => {
  const at = Date.UTC(2030, 0, 7, 23, 30);
  expect(moment(at, "UTC")).toMatch(/7.*2030.*11:30|7.*2030.*23:30/);
  expect(moment(at, "Europe/Berlin")).toMatch(/8.*2030.*12:30|8.*2030.*00:30/);
});
