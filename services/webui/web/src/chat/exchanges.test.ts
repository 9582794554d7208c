import { expect, test } from "vitest";
import type { AssistantBlock, RunOutcome } from "../api/types";
import type { Item } from "../session/view";
import { exchangesOf, stretchesOf, unansweredAt, wordsBefore } from "./exchanges";

const user = (id: string): Item => ({ kind: "user", id, ts: 0, text: id, images: [], files: [], source: "prompt" });
const reply = (id: string, ...content: AssistantBlock[]): Item => ({
  kind: "assistant",
  id,
  ts: 0,
  message: { role: "assistant", content, model: "m" },
});
const words = (text: string): AssistantBlock => ({ type: "text", text });
const call: AssistantBlock = { type: "tool_call", call_id: "c", name: "bash" };
const note = (id: string): Item => ({ kind: "note", id, ts: 0, text: id });
const end = (id: string, outcome: RunOutcome): Item => ({
  kind: "run_end",
  id,
  ts: 0,
  expired: 0,
  end: { type: "run_end", id, seq: 1, outcome },
});

test("parts keep their names when older ones are put on top", () => {
  const items = [note("n"), user("u2"), reply("a2", words("x")), user("u3")];
  const before = exchangesOf(items).map((part) => part.id);
  const after = exchangesOf([user("u1"), reply("a1", words("y")), ...items]).map((part) => part.id);
  expect(before).toEqual(["n", "u2", "u3"]);
  expect(after.slice(-2)).toEqual(["u2", "u3"]);
});

test("the words of a run that was stopped can be copied, past the note about its queue", () => {
  const items = [user("u"), reply("a", words("half of it")), note("Not said"), end("e", "aborted")];
  expect(wordsBefore(items, 3)).toBe("half of it");
  expect(wordsBefore([user("u"), end("e", "failed")], 1)).toBe("");
});

test.each([
  ["a prompt without an answer", [user("u"), end("e", "failed")], 1],
  ["a result that the model has not seen", [user("u"), reply("a", call), end("e", "turn_limit")], 2],
  ["a reply that says nothing", [user("u"), reply("a", words(" ")), end("e", "failed")], 2],
  ["another model was chosen since", [user("u"), end("e", "failed"), note("Model is now x")], 1],
  ["an answer", [user("u"), reply("a", words("done")), end("e", "timed_out")], -1],
  ["a run that a person stopped", [user("u"), end("e", "aborted")], -1],
  ["a run that completed", [user("u"), reply("a", words("x")), end("e", "completed")], -1],
  ["an older failure", [user("u"), end("e", "failed"), user("u2")], -1],
] as const)("whether a run can go on: %s", (_, items, at) => {
  expect(unansweredAt(items)).toBe(at);
});

test("a long run is drawn in few stretches, and what is in one stays there when more follows", () => {
  const items = Array.from({ length: 1000 }, (_, index) => reply(`a${index}`));
  const stretches = stretchesOf(items);
  expect(stretches.flatMap((stretch) => stretch.items)).toEqual(items);
  expect(stretches.length).toBeLessThan(100);
  const places = (count: number) =>
    stretchesOf(items.slice(0, count)).flatMap(({ from, items: inside }) => inside.map((item) => `${item.id} ${from}`));
  expect(places(999)).toEqual(places(1000).slice(0, 999));
});
