import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { calm } from "./calm";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("the first wish is done at once, and many within the pause become one", () => {
  const act = vi.fn();
  const { ask } = calm(act, 5000);
  ask();
  expect(act).toHaveBeenCalledTimes(1);
  for (let n = 0; n < 10; n += 1) ask();
  vi.advanceTimersByTime(4999);
  expect(act).toHaveBeenCalledTimes(1);
  vi.advanceTimersByTime(1);
  expect(act).toHaveBeenCalledTimes(2);
  vi.advanceTimersByTime(60_000);
  expect(act).toHaveBeenCalledTimes(2);
  ask();
  expect(act).toHaveBeenCalledTimes(3);
});

test("what waits is forgotten when it is stopped", () => {
  const act = vi.fn();
  const { ask, stop } = calm(act, 5000);
  ask();
  ask();
  stop();
  vi.advanceTimersByTime(10_000);
  expect(act).toHaveBeenCalledTimes(1);
});
