import type { KnownModel } from "../api/types";
export { saysOf } from "../session/outbox";
import { count } from "../ui/format";

const EFFORTS = ["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"];

/** Levels of thinking, the least first. */
export function byEffort(levels: readonly string[]): string[] {
  return [...levels].sort((a, b) => EFFORTS.indexOf(a) - EFFORTS.indexOf(b));
}

/** What one wants to know of a model before it is chosen: its window and its price; what is not known is not said. */
export function modelHint({
  context_window: window,
  input_usd_per_mtok: input,
  output_usd_per_mtok: output,
}: Pick<KnownModel, "context_window" | "input_usd_per_mtok" | "output_usd_per_mtok">): string {
  const price = input === null || output === null ? "price unknown" : `$${input} in, $${output} out per million tokens`;
  return [window === null ? "window unknown" : `${count(window)} tokens`, price].join(" · ");
}
