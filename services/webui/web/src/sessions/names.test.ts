import { expect, test } from "vitest";
import { nameOf } from "./names";

const NOTHING = { title: null, preview: null };
const AT = Date.parse("2026-11-22T10:05:00");

test("a title comes before the first words, and those before all else", () => {
  expect(nameOf({ title: "Named", preview: "first words", id: "a", created_at: AT })).toBe("Named");
  expect(nameOf({ title: null, preview: "first words\nand more", id: "a", created_at: AT })).toBe("first words");
});

test("the session that jobs deliver to has a name before anybody said anything in it", () => {
  expect(nameOf({ ...NOTHING, id: "main", created_at: AT })).toBe("Main session");
});

test("two empty sessions can be told apart by when they were made", () => {
  const names = [AT, AT + 60_000].map((created_at) => nameOf({ ...NOTHING, id: "x", created_at }));
  expect(new Set(names).size).toBe(2);
  expect(names[0]).toMatch(/^New session, .*10:05/);
});
