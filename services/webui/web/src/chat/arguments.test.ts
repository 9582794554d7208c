import { expect, test } from "vitest";
import { mainArgument, patchedFiles } from "./arguments";

const said = (name: string, given: Record<string, unknown>): string =>
  mainArgument({ type: "tool_call", call_id: "c", name, arguments: given });

test("a patch is told by the files that it touches, in either of its forms", () => {
  const own =
    "*** Begin Patch\n*** Update File: src/a b.py\n@@\n-x\n+y\n*** Add File: n.txt\n+--- a\n+++ plus\n*** End Patch\n";
  expect(said("apply_patch", { patch: own })).toBe("src/a b.py, n.txt");
  const unified = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-1\n+2\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n";
  expect(patchedFiles(unified)).toEqual(["x.py", "gone"]);
  expect(patchedFiles("*** Begin Patch\n*** Update File: src/b")).toEqual(["src/b"]);
  expect(patchedFiles("nothing of the kind")).toEqual([]);
});

test("a patch that is still being written names its files already", () => {
  const raw_arguments = '{"patch":"*** Begin Patch\\n*** Update File: a.py\\n@@';
  expect(mainArgument({ type: "tool_call", call_id: "c", name: "apply_patch", raw_arguments })).toBe("a.py");
});

test("tools of which no single argument says enough are told in words", () => {
  expect(said("process", { action: "poll", process: "web-1", wait_s: 5 })).toBe("poll web-1");
  expect(said("process_control", { action: "send_keys", process: "vi", keys: ["Escape", ":q"] })).toBe(
    "send_keys vi Escape :q",
  );
  expect(said("run_tests", {})).toBe("everything");
  expect(said("run_tests", { targets: ["tests/a.py", "tests/b.py"], path: "web" })).toBe(
    "tests/a.py tests/b.py in web",
  );
  expect(said("git_diff", { staged: true, revision: "main...HEAD", path: "." })).toBe("staged main...HEAD");
  expect(said("git_diff", {})).toBe("");
  expect(said("git_commit", { path: ".", message: "Fix it\n\nBody" })).toBe("Fix it ⏎ Body");
});

test("tools from elsewhere are told by the argument that says most", () => {
  expect(said("mcp__hub__create_issue", { owner: "x", title: "It breaks" })).toBe("It breaks");
  expect(said("nats__forecast", { place: "Kiel" })).toBe("Kiel");
  expect(said("nats__sum", { numbers: [1, 2] })).toBe('{"numbers":[1,2]}');
});
