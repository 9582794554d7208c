import { describe, expect, it } from "vitest";
import type { BudgetState } from "../api/types.generated";
import { labelOfBudget, usedOf } from "./budgets";

const budget = (fields: Partial<BudgetState>): BudgetState => ({
  of: "user",
  name: "ann",
  per: "day",
  period: "2026-11-27",
  limit_usd: 4,
  extended_usd: 0,
  spent_usd: 0,
  unknown_usd: 0,
  reserved_usd: 0,
  left_usd: 4,
  resets_at: 0,
  ...fields,
});

describe("usedOf", () => {
  it("is what is spent or reserved of the limit and what was approved beside it", () => {
    expect(usedOf(budget({ spent_usd: 1, reserved_usd: 1, left_usd: 2 }))).toBe(0.5);
    expect(usedOf(budget({ extended_usd: 4, spent_usd: 2, left_usd: 6 }))).toBe(0.25);
    expect(usedOf(budget({ spent_usd: 9, left_usd: 0 }))).toBe(1);
  });
});

describe("labelOfBudget", () => {
  it("tells agents from users", () => {
    expect(labelOfBudget(budget({}))).toBe("ann, day");
    expect(labelOfBudget(budget({ of: "agent", name: "main" }))).toBe("Agent main, day");
  });
});
