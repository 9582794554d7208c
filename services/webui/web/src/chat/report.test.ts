import { expect, test } from "vitest";
import type { Json, ToolOutcome } from "../api/types";
import { reportOf } from "./report";

const outcome = (details: Json): ToolOutcome => ({ status: "ok", content: [], details });

test("a test run becomes counts and problems with their places", () => {
  const report = reportOf(
    "run_tests",
    outcome({
      kind: "tests",
      counts: { passed: 12, failed: 1, skipped: 0 },
      problems: [{ file: "tests/test_a.py", line: 7, test: "test_adds", message: "assert 3 == 4", severity: "error" }],
      problems_total: 1,
    }),
  );
  expect(report).toEqual({
    kind: "check",
    counts: [
      { name: "passed", number: 12, tone: "good" },
      { name: "failed", number: 1, tone: "bad" },
    ],
    problems: [{ place: "tests/test_a.py:7", what: "test_adds", message: "assert 3 == 4", warning: false }],
    total: 1,
  });
});

test("a linter names codes, and a place may lack its line", () => {
  const report = reportOf(
    "run_lint",
    outcome({ counts: { errors: 1 }, problems: [{ file: "a.py", code: "F401", severity: "warning" }] }),
  );
  expect(report).toMatchObject({ problems: [{ place: "a.py", what: "F401", message: "", warning: true }], total: 1 });
});

test("a page says where it was found in the end, and only https can be opened", () => {
  const details = { url: "https://a.example/x", final_url: "https://b.example/y", status: 200, title: "B" };
  expect(reportOf("web_fetch", outcome(details))).toEqual({
    kind: "facts",
    facts: [
      { name: "Title", value: "B" },
      { name: "Ended at", value: "https://b.example/y", link: "https://b.example/y" },
      { name: "Status", value: "200" },
    ],
  });
  const plain = reportOf("web_fetch", outcome({ url: "http://a.example/", final_url: "http://a.example/" }));
  expect(plain).toEqual({ kind: "facts", facts: [{ name: "Page", value: "http://a.example/" }] });
});

test("a process says what it runs and how it is", () => {
  const running = { process: "web", command: "npm start", state: "running", seconds: 12.4 };
  expect(reportOf("process", outcome(running))).toEqual({
    kind: "facts",
    facts: [
      { name: "Command", value: "npm start" },
      { name: "State", value: "running for 12 s" },
    ],
  });
  const ended = { state: "ended", seconds: 3, exit_code: 1 };
  expect(reportOf("process_control", outcome(ended))).toEqual({
    kind: "facts",
    facts: [{ name: "State", value: "ended with exit code 1 after 3 s" }],
  });
});

test("a command that runs on in the background says so, any other makes no report", () => {
  expect(reportOf("bash", outcome({ process: "p1", state: "running", command: "cat" }))).toEqual({
    kind: "facts",
    facts: [{ name: "Process", value: "p1" }],
    tag: "in the background",
  });
  expect(reportOf("bash", outcome({ killed_processes: 2 }))).toBeNull();
});

test("what other tools put into their details is not taken for a report", () => {
  const details = { counts: { passed: 1 }, url: "https://a.example/", final_url: "https://b.example/" };
  expect(reportOf("mcp__x__run_tests", outcome(details))).toBeNull();
  for (const odd of [{}, { counts: [1], problems: "many" }, { counts: { passed: "1" } }])
    expect(reportOf("run_tests", outcome(odd))).toBeNull();
});
