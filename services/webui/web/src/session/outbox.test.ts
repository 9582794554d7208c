import { expect, it, vi } from "vitest";
import { ApiError } from "../api/client";
import type { Entry } from "../api/types";
import { newKey, type Outgoing, persistently, settle } from "./outbox";

const out = (key: string): Outgoing => ({
  key,
  kind: "prompt",
  text: "t",
  attachments: [],
  state: "stored",
  problem: null,
  seq: null,
  at: 0,
});

it("lets go of what the log shows, in whichever way it came to be there", () => {
  const outbox = [out("a"), out("b")];
  const shown: Entry[] = [
    { type: "message", id: "m", seq: 1, message: { role: "user", content: [], keys: ["a"] } },
    { type: "queued", id: "q", seq: 1, mail_seq: 1, kind: "steer", content: [], key: "a" },
    { type: "run_end", id: "e", seq: 1, outcome: "aborted", keys: ["a"] },
  ];
  for (const entry of shown) expect(settle(outbox, entry).map((one) => one.key)).toEqual(["b"]);
  expect(settle(outbox, { type: "mode_change", id: "x", seq: 2, mode: "ask" })).toBe(outbox);
});

it("lets go of what was consumed by an entry that does not name it", () => {
  const entry: Entry = { type: "mode_change", id: "x", seq: 9, mode: "ask", cursor: 7 };
  const outbox = [{ ...out("a"), seq: 7 }, { ...out("b"), seq: 8 }, out("c")];
  expect(settle(outbox, entry).map((one) => one.key)).toEqual(["b", "c"]);
});

it("sends again after what may pass, and not after what will not", async () => {
  vi.useFakeTimers();
  const send = vi
    .fn()
    .mockRejectedValueOnce(new ApiError(0, "", "away"))
    .mockRejectedValueOnce(new ApiError(503, "", "busy"))
    .mockResolvedValue("ok");
  const problems: string[] = [];
  const sent = persistently(send, (problem) => problems.push(problem));
  await vi.runAllTimersAsync();
  expect(await sent).toBe("ok");
  expect(problems).toEqual(["away", "busy"]);
  vi.useRealTimers();

  const refuse = vi.fn().mockRejectedValue(new ApiError(409, "", "key used"));
  await expect(persistently(refuse, () => undefined)).rejects.toThrow("key used");
  expect(refuse).toHaveBeenCalledTimes(1);
});

it("makes keys that are one subject token and differ", () => {
  const keys = new Set(Array.from({ length: 500 }, newKey));
  expect(keys.size).toBe(500);
  for (const key of keys) expect(key).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
});
