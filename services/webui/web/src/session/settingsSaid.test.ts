import { expect, test } from "vitest";
import type { Entry, SessionInfoEntry } from "../api/types";
import { foldAll } from "./fold";
import { settingsSaid } from "./settingsSaid";

const info = (part: Partial<SessionInfoEntry>, seq = 9): SessionInfoEntry => ({
  type: "session_info",
  id: `i${seq}`,
  seq,
  ...part,
});

test("every setting that changes is said, in one line", () => {
  const said = settingsSaid(info({ sandbox: "docker", work_mode: "plan", deny: ["write", "bash(git push *)"] }), null);
  expect(said).toBe("Sandbox is now docker · Work mode is now plan · Denied here: write, bash(git push *)");
  expect(settingsSaid(info({ work_mode: "", deny: [] }), null)).toBe(
    "Work mode is now none · No rules of this session deny anything",
  );
  expect(settingsSaid(info({ title: "New name" }), null)).toBeNull();
});

test("a move is said, the first place of a workspace of its own is not", () => {
  const scratch = { host: "a", workspace: "s-1", kind: "scratch" } as const;
  expect(settingsSaid(info({ placement: scratch }), null)).toBeNull();
  expect(settingsSaid(info({ placement: { ...scratch, host: "b" } }), "a")).toBe("The workspace is now on b");
  expect(settingsSaid(info({ placement: scratch }), "a")).toBeNull();
  expect(settingsSaid(info({ placement: { host: "b", workspace: "" } }), null)).toBe("The workspace is now on b");
});

test("what a session was made with is no news in its conversation, what changes later is", () => {
  const said: Entry = { type: "message", id: "u2", seq: 2, message: { role: "user", content: [] } };
  const view = foldAll([
    info({ sandbox: "docker", placement: { host: "a", workspace: "w", kind: "clone" } }, 1),
    said,
    info({ placement: { host: "b", workspace: "w", kind: "clone" } }, 3),
  ]);
  expect(view.host).toBe("b");
  expect(view.items.filter((item) => item.kind === "note").map((note) => note.text)).toEqual([
    "The workspace is now on b",
  ]);
});
