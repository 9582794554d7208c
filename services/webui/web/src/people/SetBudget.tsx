import { type SyntheticEvent, useState } from "react";
import { wordsOf } from "../api/pages";
import type { ListedUser } from "../api/types.generated";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { dollars, people } from "./people";
import styles from "./People.module.css";

/** What models may cost for a user, a day and a month; empty: there is no limit. */
export function SetBudget({ user, onClose }: { user: ListedUser; onClose: () => void }) {
  const [day, setDay] = useState(String(user.budget.usd_per_day ?? ""));
  const [month, setMonth] = useState(String(user.budget.usd_per_month ?? ""));
  const [saving, setSaving] = useState(false);
  const [refusal, setRefusal] = useState("");
  const limits = { usd_per_day: dollars(day), usd_per_month: dollars(month) };
  const wrong = limits.usd_per_day === null || limits.usd_per_month === null;
  const save = (event: SyntheticEvent): void => {
    event.preventDefault();
    const { usd_per_day, usd_per_month } = limits;
    if (usd_per_day === null || usd_per_month === null) return;
    setSaving(true);
    setRefusal("");
    people.change(user.name, { usd_per_day, usd_per_month }).then(onClose, (error: unknown) => {
      setSaving(false);
      setRefusal(wordsOf(error));
    });
  };
  return (
    <Dialog title={`Budget of ${user.name}`} onClose={onClose}>
      <form className={styles.form} onSubmit={save}>
        <label>
          <span className={styles.name}>Dollars a day (UTC)</span>
          <input
            inputMode="decimal"
            autoFocus
            placeholder="no limit"
            value={day}
            onChange={(e) => setDay(e.target.value)}
          />
        </label>
        <label>
          <span className={styles.name}>Dollars a month</span>
          <input inputMode="decimal" placeholder="no limit" value={month} onChange={(e) => setMonth(e.target.value)} />
        </label>
        <p className={styles.plain}>
          It counts for what {user.name} writes and for the jobs of {user.name}, whichever agent answers. At a limit,
          runs wait for another administrator to allow more.
        </p>
        {(refusal || wrong) && (
          <p className="bad-news" role="alert">
            {refusal || "An amount such as 5 or 2.50, or nothing for no limit."}
          </p>
        )}
        <div className={styles.answers}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={saving || wrong}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
