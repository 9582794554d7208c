import { expect, test } from "vitest";
import type { Session } from "../api/types";
import { inPlace, shown } from "./still";

const session = (id: string, updated_at: number, title = id): Session =>
  ({ id, updated_at, title }) as unknown as Session;

test("a session that went to the top stays where it was, with its new title", () => {
  const before = [session("a", 30), session("b", 20), session("c", 10)];
  const now = [session("c", 40, "news"), session("a", 30), session("b", 20)];
  const shown = inPlace(before, now);
  expect(shown.map((each) => each.id)).toEqual(["a", "b", "c"]);
  expect(shown[2]).toMatchObject({ title: "news", updated_at: 10 });
});

test("one that is gone leaves, and one that is new waits", () => {
  const before = [session("a", 30), session("b", 20)];
  const now = [session("new", 40), session("b", 20)];
  expect(inPlace(before, now).map((each) => each.id)).toEqual(["b"]);
});

test("another list, and one that was empty, hold nothing back", () => {
  const [a, b] = [session("a", 30), session("b", 20)];
  expect(shown({ sessions: [a], kind: "" }, [b, a], "").map((each) => each.id)).toEqual(["a"]);
  expect(shown({ sessions: [a], kind: "" }, [b], "archived").map((each) => each.id)).toEqual(["b"]);
  expect(shown({ sessions: [], kind: "" }, [b], "").map((each) => each.id)).toEqual(["b"]);
});
