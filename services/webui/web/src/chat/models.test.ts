import { expect, it } from "vitest";
import { byEffort, modelHint } from "./models";

it("tells the window and the price of a model, and what is not known of it", () => {
  expect(modelHint({ context_window: 200_000, input_usd_per_mtok: 3, output_usd_per_mtok: 15 })).toBe(
    "200k tokens · $3 in, $15 out per million tokens",
  );
  expect(modelHint({ context_window: null, input_usd_per_mtok: 0, output_usd_per_mtok: 0 })).toBe(
    "window unknown · $0 in, $0 out per million tokens",
  );
  expect(modelHint({ context_window: 8000, input_usd_per_mtok: 1, output_usd_per_mtok: null })).toContain(
    "price unknown",
  );
});

it("lists levels of thinking with the least first", () => {
  expect(byEffort(["high", "low", "medium", "minimal"])).toEqual(["minimal", "low", "medium", "high"]);
});
