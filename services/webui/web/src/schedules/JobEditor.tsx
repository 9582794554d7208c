import { type SyntheticEvent, useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { newKey } from "../session/outbox";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { cron, type Draft, draftOf, emptyDraft, EXAMPLES, type Job, jobOf, type Preview, type When } from "./jobs";
import styles from "./Schedules.module.css";

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const WAIT_MS = 250;
const HINTS: Readonly<Record<When, string>> = {
  at: "2026-12-24T18:00, 20m, in 2 hours",
  every: "10m, 1h, 1d",
  cron: "minute hour day month weekday, or @daily; 0 is Sunday",
};

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
  return (
    <Dialog title={job ? "Edit job" : "New job"} onClose={onClose}>
      <form className={styles.form} onSubmit={save}>
        <label>
          What
          <select value={draft.what} onChange={(event) => set({ what: event.target.value as Draft["what"] })}>
            <option value="agentTurn">Run a task in a session of its own</option>
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
                set({ when, text: EXAMPLES[when] });
              }}
            >
              <option value="cron">By the calendar</option>
              <option value="every">Every so often</option>
              <option value="at">Once</option>
            </select>
          </label>
          <label>
            {draft.when === "cron" ? "Expression" : draft.when === "every" ? "Interval" : "Time"}
            <input
              required
              spellCheck={false}
              value={draft.text}
              placeholder={HINTS[draft.when]}
              onChange={(event) => set({ text: event.target.value })}
            />
          </label>
        </div>
        <small>{HINTS[draft.when]}</small>
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
            placeholder="its first words"
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
          {turn ? "Send the answer to the session that was used last" : "Have it looked at at once"}
        </label>
        <div className={styles.preview} role="status">
          {understood.problem && <p className={styles.bad}>{understood.problem}</p>}
          {understood.preview && (
            <>
              <p>{understood.preview.words}</p>
              <ol>
                {understood.preview.local.map((time) => (
                  <li key={time}>{time.replace("T", " ")}</li>
                ))}
              </ol>
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
  const { when, text, tz } = draft;
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => {
      const asked = { ...emptyDraft(tz), when, text, message: "-" };
      cron.preview(asked).then(
        (preview) => current && setFound({ preview, problem: null }),
        (error: unknown) =>
          current &&
          setFound({
            preview: null,
            problem: error instanceof ApiError ? error.message : "The scheduler cannot be asked.",
          }),
      );
    }, WAIT_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [when, text, tz]);
  return found;
}
