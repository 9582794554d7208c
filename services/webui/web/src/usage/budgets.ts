import type { BudgetState } from "../api/types.generated";

/** Whose budget it is, and for how long. */
export function labelOfBudget(budget: BudgetState): string {
  return `${budget.of === "agent" ? "Agent " : ""}${budget.name}, ${budget.per}`;
}

/** The part of it that is spent or reserved: 0 to 1. */
export function usedOf(budget: BudgetState): number {
  const limit = budget.limit_usd + budget.extended_usd;
  return limit > 0 ? Math.min(1, Math.max(0, 1 - budget.left_usd / limit)) : 1;
}

/** When the next period begins, where the reader is. */
export function resetOf(budget: BudgetState): string {
  const options = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } as const;
  return new Date(budget.resets_at).toLocaleString(undefined, options);
}
