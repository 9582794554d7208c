import { useCallback, useEffect, useState } from "react";
import type { UsageReport, UsageSum } from "../api/types.generated";
import { PageHead } from "../chat/PageHead";
import { Button } from "../ui/Button";
import { count, plural } from "../ui/format";
import { Problem } from "../ui/Problem";
import { Spinner } from "../ui/Spinner";
import { Budgets } from "./Budgets";
import styles from "./Usage.module.css";
import { BY, type By, costInWords, costOf, inOrder, labelOf, RANGES, readUsage, shareOf } from "./usage";

const AGAIN_MS = 15_000;

/** What models were used for, and what that cost: by day, agent, model or user. */
export function Usage({ onMenu }: { onMenu: () => void }) {
  const [by, setBy] = useState<By>("day");
  const [days, setDays] = useState<number | null>(30);
  const { report, problem, ask } = useReport(by, days);
  const total = report?.total;
  return (
    <>
      <PageHead title="Usage" onMenu={onMenu}>
        {total && <span title={costInWords(total)}>{facts(total)}</span>}
      </PageHead>
      <div className={styles.page}>
        <div className={styles.column} aria-busy={!report && !problem}>
          <div className={styles.bar}>
            <div className={styles.choices} role="radiogroup" aria-label="Summed by">
              {BY.map((each) => (
                <label key={each.by} className={styles.choice}>
                  <input type="radio" name="by" checked={by === each.by} onChange={() => setBy(each.by)} />
                  <span>{each.label}</span>
                </label>
              ))}
            </div>
            <select
              aria-label="Range"
              className={styles.range}
              value={days ?? "all"}
              onChange={(event) => setDays(event.target.value === "all" ? null : Number(event.target.value))}
            >
              {RANGES.map((each) => (
                <option key={each.label} value={each.days ?? "all"}>
                  {each.label}
                </option>
              ))}
            </select>
          </div>
          {problem && <Problem onAgain={ask}>{problem}</Problem>}
          {!report && !problem && <Spinner />}
          {report?.rows.length === 0 && <Empty all={days === null} onAll={() => setDays(null)} />}
          {report && report.rows.length > 0 && <Table report={report} />}
          <Budgets />
        </div>
      </div>
    </>
  );
}

/** The report that was asked for last; again every few seconds while it is looked at. */
function useReport(
  by: By,
  days: number | null,
): { report: UsageReport | null; problem: string | null; ask: () => void } {
  const [found, setFound] = useState<{ days: number | null; report: UsageReport } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [times, setTimes] = useState(0);
  const ask = useCallback(() => setTimes((before) => before + 1), []);
  useEffect(() => {
    const leaving = new AbortController();
    const load = (): void => {
      if (document.visibilityState !== "visible") return;
      readUsage(by, days, leaving.signal).then(
        (report) => {
          setFound({ days, report });
          setProblem(null);
        },
        (error: unknown) => {
          if (!leaving.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
        },
      );
    };
    load();
    const timer = setInterval(load, AGAIN_MS);
    return () => {
      clearInterval(timer);
      leaving.abort();
    };
  }, [by, days, times]);
  const fits = found?.report.by === by && found.days === days;
  return { report: fits ? found.report : null, problem, ask };
}

function Table({ report }: { report: UsageReport }) {
  const { by, total } = report;
  const rows = inOrder(by, report.rows);
  return (
    <table className={styles.table}>
      <caption className="visually-hidden">Usage of models by {by}</caption>
      <thead>
        <tr>
          <th scope="col">{BY.find((each) => each.by === by)?.column}</th>
          <th scope="col" className={styles.wide}>
            Replies
          </th>
          <th scope="col" className={styles.wide}>
            Tokens in
          </th>
          <th scope="col" className={styles.wide}>
            of these cached
          </th>
          <th scope="col" className={styles.wide}>
            Tokens out
          </th>
          <th scope="col">Cost</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Row key={row.name} row={row} label={labelOf(by, row.name)} share={shareOf(row, rows)} />
        ))}
      </tbody>
      {rows.length > 1 && (
        <tfoot>
          <Row row={total} label="Sum" share={0} />
        </tfoot>
      )}
    </table>
  );
}

function Row({ row, label, share }: { row: UsageSum; label: string; share: number }) {
  return (
    <tr>
      <th scope="row">
        {label}
        <small className={styles.narrow}>
          {plural(row.replies, "reply", "replies")}, {count(row.input_tokens)} in, {count(row.output_tokens)} out
        </small>
      </th>
      <td className={styles.wide}>{row.replies.toLocaleString()}</td>
      <td className={styles.wide} title={row.input_tokens.toLocaleString()}>
        {count(row.input_tokens)}
      </td>
      <td className={styles.wide} title={row.cache_read_tokens.toLocaleString()}>
        {row.input_tokens > 0 ? `${Math.round((100 * row.cache_read_tokens) / row.input_tokens)} %` : "–"}
      </td>
      <td className={styles.wide} title={row.output_tokens.toLocaleString()}>
        {count(row.output_tokens)}
      </td>
      <td title={costInWords(row)}>
        {costOf(row)}
        {share > 0 && (
          <progress className={styles.share} max={1} value={share} aria-hidden>
            {share}
          </progress>
        )}
      </td>
    </tr>
  );
}

function Empty({ all, onAll }: { all: boolean; onAll: () => void }) {
  return (
    <div className={styles.none}>
      <h2>{all ? "No model has been used yet" : "No model was used in this period"}</h2>
      <p>
        Each reply of a model appears here within seconds, with its tokens and its cost, also after its session is
        deleted.
      </p>
      {!all && <Button onClick={onAll}>Show all</Button>}
    </div>
  );
}

function facts(total: UsageSum): string {
  return `${costOf(total)}, ${plural(total.replies, "reply", "replies")}`;
}
