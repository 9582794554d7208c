import { useEffect, useState } from "react";
import { api } from "../api/client";
import type { BudgetState } from "../api/types.generated";
import { money } from "../ui/format";
import { labelOfBudget, resetOf, usedOf } from "./budgets";
import styles from "./Usage.module.css";

const AGAIN_MS = 15_000;

/** What is left of the budgets that the reader may see; nothing where there are none. */
export function Budgets() {
  const [budgets, setBudgets] = useState<readonly BudgetState[]>([]);
  const [stale, setStale] = useState(false);
  useEffect(() => {
    let over = false;
    const load = (): void => {
      if (document.visibilityState !== "visible") return;
      api.budgets().then(
        (found) => {
          if (over) return;
          setBudgets(found);
          setStale(false);
        },
        () => {
          if (!over) setStale(true);
        },
      );
    };
    load();
    const timer = setInterval(load, AGAIN_MS);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, []);
  if (budgets.length === 0) return null;
  return (
    <section aria-label="Budgets">
      <h2 className={styles.heading}>Budgets</h2>
      <table className={styles.table}>
        <thead>
          <tr>
            <th scope="col">Whose</th>
            <th scope="col">Left</th>
            <th scope="col" className={styles.wide}>
              Spent
            </th>
            <th scope="col" className={styles.wide}>
              Reserved
            </th>
            <th scope="col">Limit</th>
            <th scope="col" className={styles.wide}>
              Resets
            </th>
          </tr>
        </thead>
        <tbody>
          {budgets.map((each) => (
            <Row key={`${each.of} ${each.name} ${each.per}`} budget={each} />
          ))}
        </tbody>
      </table>
      {stale && <p className={styles.stale}>These numbers are old: the agent service does not answer.</p>}
    </section>
  );
}

function Row({ budget }: { budget: BudgetState }) {
  const used = usedOf(budget);
  return (
    <tr data-budget={`${budget.of} ${budget.name}`}>
      <th scope="row">
        {labelOfBudget(budget)}
        <small className={styles.narrow}>
          {money(budget.spent_usd)} spent, {money(budget.reserved_usd)} reserved, resets {resetOf(budget)}
        </small>
      </th>
      <td>
        {money(budget.left_usd)}
        <progress className={styles.share} max={1} value={used} aria-label={`${Math.round(100 * used)} % used`} />
      </td>
      <td
        className={styles.wide}
        title={budget.unknown_usd > 0 ? `up to ${money(budget.unknown_usd)} of it for replies of unknown cost` : ""}
      >
        {money(budget.spent_usd)}
      </td>
      <td className={styles.wide}>{money(budget.reserved_usd)}</td>
      <td>
        {money(budget.limit_usd)}
        {budget.extended_usd > 0 && ` + ${money(budget.extended_usd)}`}
      </td>
      <td className={styles.wide}>{resetOf(budget)}</td>
    </tr>
  );
}
