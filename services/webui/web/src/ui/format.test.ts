import { expect, test } from "vitest";
import { duration } from "./format";

test.each([
  [999, "999 ms"],
  [80_000, "1 min 20 s"],
  [7_500_000, "2 h 5 min"],
  [604_740_000, "6 d 23 h"],
])("%i ms are %s", (ms, text) => expect(duration(ms)).toBe(text));
