import { useState } from "react";
import { me, useIsAdmin } from "../api/rights";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { ago, clock } from "../ui/format";
import { Icon } from "../ui/Icon";
import { Menu } from "../ui/Menu";
import { complain } from "../ui/toast";
import { useNow } from "../ui/useNow";
import { newKey } from "../session/outbox";
import { useStore } from "../session/store";
import { ChangeOwner } from "../sessions/ChangeOwner";
import { cron, type Job, scheduleText } from "./jobs";
import { Runs } from "./Runs";
import styles from "./Schedules.module.css";

/** One job: what, when next, how it went last; opened: its runs. */
export function JobRow({
  job,
  label,
  changes,
  onEdit,
  onChanged,
}: {
  job: Job;
  label: string;
  /** Whether this person may run and change it. */
  changes: boolean;
  onEdit: () => void;
  onChanged: () => void;
}) {
  const [open, setOpen] = useState(false);
  const [removing, setRemoving] = useState(false);
  const [transferring, setTransferring] = useState(false);
  const transfers = useIsAdmin();
  const account = useStore(me, (who) => who?.account);
  const now = useNow(true, 30_000);
  const act = (what: string, doing: Promise<unknown>): void =>
    void doing.then(onChanged, (error: unknown) => complain(what, error));
  const runNow = async (): Promise<void> => {
    const answer = await cron.run(job.id, newKey());
    if (!answer.fired) throw new Error(answer.reason ?? "it was not fired");
    setOpen(true);
  };
  const text = job.payload.kind === "systemEvent" ? job.payload.text : job.payload.message;
  const owner = job.createdBy?.owner || "admin";
  const suspended = job.enabled ? job.state?.suspended : undefined;
  return (
    <li className={job.enabled && !suspended ? styles.job : `${styles.job} ${styles.off}`}>
      <div className={styles.line}>
        <button type="button" className={styles.open} aria-expanded={open} onClick={() => setOpen(!open)}>
          <Icon name={open ? "down" : "chevron"} size={14} />
          <span className={styles.name}>{label}</span>
          <span className={styles.when}>{scheduleText(job.schedule)}</span>
        </button>
        <span className={styles.next}>{nextText(job, now)}</span>
        {changes && (
          <>
            <Button onClick={() => act("Could not run the job", runNow())}>Run now</Button>
            <Menu
              label={`Actions for ${label}`}
              className={styles.dots}
              items={[
                { label: "Edit", onPick: onEdit },
                {
                  label: job.enabled ? "Disable" : "Enable",
                  onPick: () => act("Could not change the job", cron.update(job.id, { enabled: !job.enabled })),
                },
                ...(transfers ? [{ label: "Change owner", onPick: () => setTransferring(true) }] : []),
                { label: "Remove", danger: true, onPick: () => setRemoving(true) },
              ]}
            >
              <Icon name="dots" />
            </Menu>
          </>
        )}
      </div>
      {suspended && <p className={styles.failed}>Suspended: {suspended}</p>}
      {job.state?.lastStatus === "error" && (
        <p className={styles.failed}>Last run failed: {job.state.lastError ?? "no reason was given"}</p>
      )}
      {open && (
        <div className={styles.inside}>
          <p className={styles.text}>{text}</p>
          <p className={styles.small}>
            {job.payload.kind === "systemEvent" ? "A line for the main session" : "A task in a session of its own"}
            {owner !== account && `, of ${owner}`}
            {job.createdBy?.session ? `, planned by an agent in ${job.createdBy.session}` : ""}
            {job.state?.lastRunAtMs ? `; last run ${clock(job.state.lastRunAtMs)}` : "; it has not run yet"}
          </p>
          <Runs job={job.id} />
        </div>
      )}
      {transferring && (
        <ChangeOwner
          of={label}
          owner={owner}
          means="From its next run on, it acts for its new owner, with their rights."
          give={async (name) => {
            await cron.transfer(job.id, name);
            onChanged();
          }}
          onClose={() => setTransferring(false)}
        />
      )}
      {removing && (
        <Confirm
          title={`Remove “${label}”?`}
          text="The job will not fire again. Its past runs stay in the list until they expire."
          action="Remove it"
          onYes={() => act("Could not remove the job", cron.remove(job.id))}
          onClose={() => setRemoving(false)}
        />
      )}
    </li>
  );
}

function nextText(job: Job, now: number): string {
  if (job.state?.running) return "running";
  if (!job.enabled) return "disabled";
  if (job.state?.suspended) return "suspended";
  const next = job.state?.nextRunAtMs;
  if (next === undefined) return "never";
  const minutes = (next - now) / 60_000;
  if (minutes < 1) return "in less than a minute";
  return minutes < 60 * 24 ? `in ${ago(now, next)}` : clock(next);
}
