import { type SyntheticEvent, useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { newKey } from "../session/outbox";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import {
  cron,
  type Draft,
  draftOf,
  emptyDraft,
  EXAMPLES,
  type Job,
  jobOf,
  moment,
  type Preview,
  type When,
} from "./jobs";
import styles from "./Schedules.module.css";

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const WAIT_MS = 250;
const CHOICES: readonly [When, string][] = [
  ["daily", "Every day"],
  ["weekdays", "Monday to Friday"],
  ["weekly", "Every week"],
  ["every", "Repeatedly"],
  ["at", "Once"],
  ["cron", "Cron expression"],
];
const WRITTEN: Readonly<Partial<Record<When, { label: string; hint: string }>>> = {
  at: { label: "Time", hint: "2026-12-24T18:00, 20m, in 2 hours" },
  every: { label: "Interval", hint: "10m, 1h, 1d" },
  cron: { label: "Expression", hint: "minute hour day month weekday, or @daily; 0 is Sunday" },
};
// 7 January 2024 was a Sunday.
const WEEKDAYS = Array.from({ length: 7 }, (_, day) =>
  new Date(2024, 0, 7 + day).toLocaleDateString(undefined, { weekday: "long" }),
);

/** Makes a job, or changes one; says while one types what was understood and when it fires. */
export function JobEditor({ job, onClose, onSaved }: { job: Job | null; onClose: () => void; onSaved: () => void }) {
  const [draft, setDraft] = useState<Draft>(() => (job ? draftOf(job, HERE) : emptyDraft(HERE)));
  const [key] = useState(newKey);
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState<string | null>(null);
  const understood = usePreview(draft);
  const set = (part: Partial<Draft>): void => {
    setRefusal(null);
    setDraft((before) => ({ ...before, ...part }));
  };
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    setSaving(true);
    (job ? cron.update(job.id, jobOf(draft)) : cron.add(draft, key)).then(onSaved, (error: unknown) => {
      setSaving(false);
      setRefusal(error instanceof Error ? error.message : String(error));
    });
  };
  const turn = draft.what === "agentTurn";
  const written = WRITTEN[draft.when];
  return (
    <Dialog title={job ? "Edit job" : "New job"} onClose={onClose}>
      <form className={styles.form} onSubmit={save}>
        <label>
          What
          <select value={draft.what} onChange={(event) => set({ what: event.target.value as Draft["what"] })}>
            <option value="agentTurn">Run a task in its own session</option>
            <option value="systemEvent">Remind the main session</option>
          </select>
        </label>
        <label>
          {turn ? "Task" : "Reminder"}
          <textarea
            rows={3}
            required
            autoFocus
            value={draft.message}
            onChange={(event) => set({ message: event.target.value })}
          />
        </label>
        <div className={styles.pair}>
          <label>
            When
            <select
              value={draft.when}
              onChange={(event) => {
                const when = event.target.value as When;
                set({ when, text: EXAMPLES[when] ?? "" });
              }}
            >
              {CHOICES.map(([when, label]) => (
                <option key={when} value={when}>
                  {label}
                </option>
              ))}
            </select>
          </label>
          {written ? (
            <label>
              {written.label}
              <input
                required
                spellCheck={false}
                value={draft.text}
                placeholder={written.hint}
                onChange={(event) => set({ text: event.target.value })}
              />
            </label>
          ) : (
            <label>
              At
              <input type="time" required value={draft.time} onChange={(event) => set({ time: event.target.value })} />
            </label>
          )}
        </div>
        {written && <small>{written.hint}</small>}
        {draft.when === "weekly" && (
          <label>
            Weekday
            <select value={draft.weekday} onChange={(event) => set({ weekday: event.target.value })}>
              {WEEKDAYS.map((name, day) => (
                <option key={name} value={day}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
        {draft.when !== "every" && (
          <label>
            Time zone
            <input spellCheck={false} value={draft.tz} onChange={(event) => set({ tz: event.target.value })} />
          </label>
        )}
        <label>
          Name
          <input
            maxLength={200}
            value={draft.name}
            placeholder="default: the first words of the text"
            onChange={(event) => set({ name: event.target.value })}
          />
        </label>
        <label className={styles.check}>
          {turn ? (
            <input
              type="checkbox"
              checked={draft.deliver}
              onChange={(event) => set({ deliver: event.target.checked })}
            />
          ) : (
            <input
              type="checkbox"
              checked={draft.wakeNow}
              onChange={(event) => set({ wakeNow: event.target.checked })}
            />
          )}
          {turn ? "Deliver the answer to the most recently used session" : "Start a turn at once"}
        </label>
        {turn && (
          <label>
            Calls that need an approval
            <select
              value={draft.onApproval}
              onChange={(event) => set({ onApproval: event.target.value as Draft["onApproval"] })}
            >
              <option value="">As its agent has it</option>
              <option value="ask">Ask, and wait for an answer</option>
              <option value="deny">Deny it, and continue without</option>
            </select>
          </label>
        )}
        <div className={styles.preview} role="status">
          {understood.problem && <p className={styles.bad}>{understood.problem}</p>}
          {understood.preview && (
            <>
              <p>{understood.preview.words}</p>
              <ol>
                {understood.preview.nextRunAtMs.map((at) => (
                  <li key={at}>{moment(at, understood.preview?.tz ?? HERE)}</li>
                ))}
              </ol>
              {understood.preview.tz !== HERE && <p>Times of {understood.preview.tz}.</p>}
              {understood.preview.warnings.map((warning) => (
                <p key={warning}>{warning}</p>
              ))}
            </>
          )}
        </div>
        {refusal && (
          <p className={styles.bad} role="alert">
            {refusal}
          </p>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={saving}>
            {job ? "Save" : "Add"}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** What the scheduler makes of a draft, a moment after the last change. */
function usePreview(draft: Draft): { preview: Preview | null; problem: string | null } {
  const [found, setFound] = useState<{ preview: Preview | null; problem: string | null }>({
    preview: null,
    problem: null,
  });
  const { when, text, time, weekday, tz } = draft;
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => {
      const asked = { ...emptyDraft(tz), when, text, time, weekday, message: "-" };
      cron.preview(asked).then(
        (preview) => current && setFound({ preview, problem: null }),
        (error: unknown) =>
          current &&
          setFound({
            preview: null,
            problem:
              error instanceof ApiError ? error.message : "The scheduler does not answer. Try again in a moment.",
          }),
      );
    }, WAIT_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [when, text, time, weekday, tz]);
  return found;
}
