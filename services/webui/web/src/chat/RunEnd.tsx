import { memo } from "react";
import type { RunEndEntry, RunOutcome } from "../api/types";
import { CopyButton } from "../ui/CopyButton";
import { count, duration, money, plural } from "../ui/format";
import styles from "./RunEnd.module.css";

const WHAT: Record<Exclude<RunOutcome, "completed">, { title: string; next: string }> = {
  aborted: { title: "Stopped.", next: "" },
  failed: { title: "The run failed.", next: "Everything above is kept. Send a message to go on from here." },
  timed_out: {
    title: "The run took too long and was ended.",
    next: "Everything above is kept. Send a message to go on from here.",
  },
  turn_limit: { title: "The run reached its limit of turns.", next: "Send “go on” to give it as many again." },
  budget: { title: "The run reached its budget.", next: "Raise the limit, or go on in another session." },
  waiting_approval: { title: "Waiting for an approval.", next: "" },
  unknown: {
    title: "Nobody can know whether the last command took effect.",
    next: "Look at what it may have changed before you repeat it.",
  },
};

/** How a run ended, and what it cost; loud only if something went wrong. */
export const RunEnd = memo(function RunEnd({ end, words }: { end: RunEndEntry; words: string }) {
  const usage = end.usage ?? {};
  const facts = [
    end.turns ? plural(end.turns, "turn") : "",
    end.duration_ms ? duration(end.duration_ms) : "",
    usage.output_tokens ? `${count(usage.output_tokens)} tokens` : "",
    usage.cost_usd ? money(usage.cost_usd) : "",
  ].filter(Boolean);
  const what = end.outcome === "completed" ? null : WHAT[end.outcome];
  const quiet = what === null || end.outcome === "aborted";
  return (
    <footer className={quiet ? styles.end : `${styles.end} ${styles.loud}`}>
      {what && (
        <div>
          <strong>{what.title}</strong> {end.error && <span className={styles.error}>{end.error}</span>} {what.next}
        </div>
      )}
      <div className={styles.facts}>
        {words && <CopyButton text={words} label="Copy the reply" />}
        <span>{facts.join(" · ")}</span>
      </div>
    </footer>
  );
});
