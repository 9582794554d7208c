import { expect, it } from "vitest";
import type { ToolCallBlock } from "../api/types";
import { mainArgument } from "./arguments";
import { diffCounts, readDiff } from "./diff";

const DIFF = "--- a/x\n+++ b/x\n@@ -3,3 +3,4 @@\n same\n-old\n+new\n+more\n same\n\\ No newline at end of file\n";

it("numbers the lines of a unified diff before and after", () => {
  expect(readDiff(DIFF).map((line) => [line.kind, line.before, line.after])).toEqual([
    ["file", null, null],
    ["file", null, null],
    ["hunk", null, null],
    ["same", 3, 3],
    ["removed", 4, null],
    ["added", null, 4],
    ["added", null, 5],
    ["same", 5, 6],
    ["hunk", null, null],
  ]);
  expect(diffCounts(DIFF)).toEqual({ added: 2, removed: 1 });
});

it("does not take a removed line of dashes for the head of a file", () => {
  expect(readDiff("@@ -1,2 +1,1 @@\n--- a rule\n x").map((line) => line.kind)).toEqual(["hunk", "removed", "same"]);
});

const call = (part: object): ToolCallBlock => ({ type: "tool_call", call_id: "c", name: "t", ...part });

it("names the argument that matters, also of a call that is still being written", () => {
  expect(mainArgument(call({ arguments: { timeout_s: 3, command: "ls\n  -la" } }))).toBe("ls ⏎ -la");
  expect(mainArgument(call({ arguments: { path: ".", pattern: "TODO" } }))).toBe("TODO");
  expect(mainArgument(call({ raw_arguments: '{"path": "a/b.py", "content": "x\\ny' }))).toBe("a/b.py");
  expect(mainArgument(call({ raw_arguments: '{"comm' }))).toBe("");
  expect(mainArgument(call({ arguments: { n: 3 } }))).toBe('{"n":3}');
});

it("tells where the next file begins, also without a line of git's between them", () => {
  const two =
    "--- a.py\n+++ a.py\n@@ -1 +1,2 @@\n-x\n+y\n+z\n--- b.py\n+++ b.py\n@@ -0,0 +1 @@\n+new\n[the diff is longer]\n";
  expect(readDiff(two).map((line) => line.kind)).toEqual([
    ...["file", "file", "hunk", "removed", "added", "added"],
    ...["file", "file", "hunk", "added", "file"],
  ]);
  expect(diffCounts(two)).toEqual({ added: 3, removed: 1 });
});
