// @vitest-environment jsdom
import { expect, test } from "vitest";
import { readHint } from "./news";

test("a welcome means: look at everything", () => {
  expect(readHint('{"type":"welcome"}')).toEqual({ kind: "all", id: "" });
});

test("a change names its kind and id", () => {
  expect(readHint('{"type":"changed","kind":"job","id":"j1"}')).toEqual({ kind: "job", id: "j1" });
});

test("what this version does not know is left out", () => {
  expect(readHint('{"type":"other"}')).toBeNull();
});
