import { useEffect, useState } from "react";
import { complain } from "../ui/toast";
import { cron, type Firing, type Job, week } from "./jobs";
import styles from "./Schedules.module.css";

const MOST_JOBS = 50;
const MOST_FIRINGS = 60; // of each: more would only fill the page

/** The next seven days: the next five firings of each job, in its day. */
export function Week({ jobs }: { jobs: readonly Job[] }) {
  const [firings, setFirings] = useState<readonly Firing[]>([]);
  const [from] = useState(() => Date.now());
  useEffect(() => {
    let current = true;
    const asked = jobs.filter((job) => job.enabled).slice(0, MOST_JOBS);
    Promise.all(asked.map((job) => cron.get(job.id, MOST_FIRINGS))).then(
      (answers) => {
        const found = answers.flatMap(({ job, preview }) => (preview?.nextRunAtMs ?? []).map((at) => ({ job, at })));
        if (current) setFirings(found);
      },
      (error: unknown) => current && complain("Could not look ahead", error),
    );
    return () => {
      current = false;
    };
  }, [jobs]);

  return (
    <div className={styles.week}>
      {week(firings, from).map(({ day, firings: onDay }) => (
        <section key={day} aria-label={new Date(day).toLocaleDateString(undefined, { dateStyle: "full" })}>
          <h2>{new Date(day).toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" })}</h2>
          <ul>
            {onDay.map(({ job, at }) => (
              <li key={`${job.id}-${at}`}>
                <time dateTime={new Date(at).toISOString()}>
                  {new Date(at).toLocaleTimeString(undefined, { timeStyle: "short" })}
                </time>
                <span>{job.name}</span>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}
