import { useState } from "react";
import { Button } from "../ui/Button";
import { Escaped } from "../ui/Escaped";
import type { Count, Problem, Report } from "./report";
import styles from "./ToolReport.module.css";

const SHOWN = 20;

/** What a tool reports beside its text. */
export function ToolReport({ report }: { report: Report }) {
  if (report.kind === "check") return <Problems problems={report.problems} total={report.total} />;
  return (
    <dl className={styles.facts}>
      {report.facts.map((fact) => (
        <div key={fact.name}>
          <dt>{fact.name}</dt>
          <dd>
            {fact.link ? (
              <a href={fact.link} target="_blank" rel="noopener noreferrer nofollow">
                <Escaped text={fact.value} />
              </a>
            ) : (
              <Escaped text={fact.value} />
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** How many tests passed and failed, on the line of the call. */
export function Counts({ counts }: { counts: readonly Count[] }) {
  return (
    <span className={styles.counts}>
      {counts.map((count) => (
        <span key={count.name} className={styles[count.tone]}>
          {count.number} {count.name}
        </span>
      ))}
    </span>
  );
}

function Problems({ problems, total }: { problems: readonly Problem[]; total: number }) {
  const [all, setAll] = useState(false);
  if (problems.length === 0) return null;
  const shown = all ? problems : problems.slice(0, SHOWN);
  const left = problems.length - shown.length;
  return (
    <div className={styles.problems}>
      <ul aria-label="Problems">
        {shown.map((problem, index) => (
          <li key={index} className={problem.warning ? styles.warn : styles.bad}>
            {problem.place && (
              <code>
                <Escaped text={problem.place} />
              </code>
            )}{" "}
            {problem.what && (
              <strong>
                <Escaped text={problem.what} />
              </strong>
            )}
            {problem.message && (
              <p>
                <Escaped text={problem.message} />
              </p>
            )}
          </li>
        ))}
      </ul>
      {left > 0 && (
        <Button tone="quiet" onClick={() => setAll(true)}>
          Show {left} more
        </Button>
      )}
      {total > problems.length && <p className={styles.rest}>{total - problems.length} more are in the output.</p>}
    </div>
  );
}
