import { expect, test } from "vitest";
import { bytes, cost, duration } from "./format";

test.each([
  [999, "999 ms"],
  [80_000, "1 min 20 s"],
  [7_500_000, "2 h 5 min"],
  [604_740_000, "6 d 23 h"],
])("%i ms are %s", (ms, text) => expect(duration(ms)).toBe(text));

test.each([
  [{}, ""],
  [{ cost_usd: 0.021 }, "$0.02"],
  [{ unpriced_replies: 2 }, "$?"],
  [{ cost_usd: 0.021, unpriced_replies: 1 }, "$0.02 + $?"],
])("%o costs %s", (usage, text) => expect(cost(usage)).toBe(text));

test.each([
  [812, "812 B"],
  [5 * 1024 ** 2, "5.0 MiB"],
  [63 * 1024 ** 3, "63.0 GiB"],
])("%i bytes are %s", (n, text) => expect(bytes(n)).toBe(text));
