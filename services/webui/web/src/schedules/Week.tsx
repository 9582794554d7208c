import { useEffect, useState } from "react";
import { complain } from "../ui/toast";
import { cron, type Job, labels } from "./jobs";
import styles from "./Schedules.module.css";
import { daysFrom, type Line, lookAhead } from "./week";

const MOST_JOBS = 50;

/** The next seven days: when each job fires, in its day. A job that fires often in a day has one line there. */
export function Week({ jobs }: { jobs: readonly Job[] }) {
  const [days] = useState(() => daysFrom(Date.now()));
  const [found, setFound] = useState<readonly Line[][][]>([]);
  useEffect(() => {
    let current = true;
    const asked = jobs.filter((job) => job.enabled).slice(0, MOST_JOBS);
    const ask = (job: Job) => async (count: number, after: number) => (await cron.get(job.id, count, after)).preview;
    Promise.all(asked.map((job) => lookAhead(job, days, ask(job)))).then(
      (lines) => current && setFound(lines),
      (error: unknown) => current && complain("Could not load the week", error),
    );
    return () => {
      current = false;
    };
  }, [jobs, days]);

  const names = labels(jobs);
  return (
    <div className={styles.week}>
      {days.map(({ start }, index) => (
        <section key={start} aria-label={new Date(start).toLocaleDateString(undefined, { dateStyle: "full" })}>
          <h2>{new Date(start).toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" })}</h2>
          <ul>
            {found
              .flatMap((lines) => lines[index] ?? [])
              .sort((a, b) => a.at - b.at)
              .map(({ job, at, often }) => (
                <li key={`${job.id}-${at}`}>
                  <span className={styles.at}>
                    {often && "from "}
                    <time dateTime={new Date(at).toISOString()}>
                      {new Date(at).toLocaleTimeString(undefined, { timeStyle: "short" })}
                    </time>
                    {often && `, ${often}`}
                  </span>
                  <span>{names.get(job.id)}</span>
                </li>
              ))}
          </ul>
        </section>
      ))}
    </div>
  );
}
