import { useCallback, useEffect, useState } from "react";
import { onNews } from "../api/news";
import { me, useMay } from "../api/rights";
import { PageHead } from "../chat/PageHead";
import { useStore } from "../session/store";
import { Button } from "../ui/Button";
import { plural } from "../ui/format";
import { complain } from "../ui/toast";
import { cron, type Job, labels, type Status } from "./jobs";
import { JobEditor } from "./JobEditor";
import { JobRow } from "./JobRow";
import styles from "./Schedules.module.css";
import { Week } from "./Week";

const SOON_MS = 300;

/** Scheduled jobs: what runs when, how it went, and the days ahead. */
export function Schedules({ onMenu }: { onMenu: () => void }) {
  const writes = useMay("write");
  const pauses = useStore(me, (who) => who?.role === "admin") && writes; // it concerns everybody
  const [jobs, setJobs] = useState<readonly Job[] | null>(null);
  const [status, setStatus] = useState<Status | null>(null);
  const [editing, setEditing] = useState<Job | "new" | null>(null);
  const [view, setView] = useState<"list" | "week">("list");

  const load = useCallback(() => {
    Promise.all([cron.list(), cron.status()]).then(
      ([listed, found]) => {
        setJobs([...listed].sort(byNext));
        setStatus(found);
      },
      (error: unknown) => complain("Could not list the schedules", error),
    );
  }, []);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      clearTimeout(timer);
      timer = setTimeout(load, SOON_MS);
    };
    load();
    const forget = onNews("job", soon);
    return () => {
      clearTimeout(timer);
      forget();
    };
  }, [load]);

  const pause = (): void => {
    if (status)
      cron.pause(!status.paused).then(load, (error: unknown) => complain("Could not change the schedules", error));
  };
  const names = labels(jobs ?? []);
  return (
    <>
      <PageHead title="Schedules" onMenu={onMenu}>
        {status && <span>{facts(status)}</span>}
      </PageHead>
      <div className={styles.page}>
        <div className={styles.column}>
          <div className={styles.bar}>
            {writes && (
              <Button tone="primary" onClick={() => setEditing("new")}>
                New job
              </Button>
            )}
            <Button aria-pressed={view === "week"} onClick={() => setView(view === "list" ? "week" : "list")}>
              {view === "list" ? "Show the week" : "Show the list"}
            </Button>
            {status?.enabled && pauses && <Button onClick={pause}>{status.paused ? "Resume" : "Pause all"}</Button>}
          </div>
          {status && !status.enabled && (
            <p className={styles.notice}>
              Scheduling is switched off (cron.enabled or FAIRLEAD_SKIP_CRON): nothing fires.
            </p>
          )}
          {status?.paused && <p className={styles.notice}>Paused: no job fires until you resume.</p>}
          {jobs?.length === 0 && <Empty onNew={writes ? () => setEditing("new") : null} />}
          {view === "list" ? (
            <ul className={styles.jobs}>
              {jobs?.map((job) => (
                <JobRow
                  key={job.id}
                  job={job}
                  label={names.get(job.id) ?? job.name}
                  changes={writes}
                  onEdit={() => setEditing(job)}
                  onChanged={load}
                />
              ))}
            </ul>
          ) : (
            jobs && <Week jobs={jobs} />
          )}
        </div>
      </div>
      {editing && (
        <JobEditor
          job={editing === "new" ? null : editing}
          onClose={() => setEditing(null)}
          onSaved={() => {
            setEditing(null);
            load();
          }}
        />
      )}
    </>
  );
}

function Empty({ onNew }: { onNew: (() => void) | null }) {
  return (
    <div className={styles.none}>
      <h2>No jobs yet</h2>
      <p>
        A job runs a task or leaves a reminder: once, every so often, or by the calendar. You can also tell an agent
        “remind me in 20 minutes”, or type <code>fairlead cron add</code> in a terminal.
      </p>
      {onNew && <Button onClick={onNew}>Create the first job</Button>}
    </div>
  );
}

function facts(status: Status): string {
  const busy = status.running > 0 ? `, ${status.running} running` : "";
  const waiting = status.queued > 0 ? `, ${status.queued} waiting` : "";
  return `${plural(status.enabledJobs, "job")} on${busy}${waiting}`;
}

function byNext(a: Job, b: Job): number {
  const next = (job: Job): number => (job.enabled ? (job.state?.nextRunAtMs ?? Infinity) : Infinity);
  return next(a) === next(b) ? a.name.localeCompare(b.name) : next(a) - next(b);
}
