import { memo, type ReactNode } from "react";
import type { RunEndEntry, RunOutcome } from "../api/types";
import type { LiveSession } from "../session/liveSession";
import { CopyButton } from "../ui/CopyButton";
import { cost, count, duration, plural } from "../ui/format";
import { GoOn } from "./GoOn";
import styles from "./RunEnd.module.css";

const KEPT = "Everything above is kept.";
type What = { title: string; next: string };

const WHAT: Record<Exclude<RunOutcome, "completed">, What> = {
  aborted: { title: "Stopped.", next: "" },
  failed: { title: "The run failed.", next: KEPT },
  truncated: {
    title: "The answer is incomplete.",
    next: "Send “continue” to get the rest, or ask for the answer in parts.",
  },
  timed_out: { title: "The run reached its time limit.", next: KEPT },
  turn_limit: { title: "The run reached its limit of turns.", next: KEPT },
  budget: { title: "The run reached its budget.", next: KEPT },
  waiting_approval: { title: "Waiting for an approval.", next: "" },
  waiting_budget: { title: "Waiting for a larger budget.", next: "" },
  waiting_provider: { title: "Waiting for the provider.", next: "" },
  requires_action: { title: "Waiting for the results of a client’s tools.", next: "" },
  unknown: {
    title: "It is not known whether the last command took effect.",
    next: "Check what it may have changed before you repeat it.",
  },
};

// An outcome that a newer server knows and this page does not.
const OTHER = { title: "The run ended.", next: "Reload the page to see how." };

interface Props {
  end: RunEndEntry;
  /** Requests for approval of this run that no one answered. */
  expired: number;
  words: string;
  /** The session, where the run can go on from here. */
  goOn: LiveSession | null;
  /** What else can be done with the reply. */
  children?: ReactNode;
}

/** How a run ended, and what it cost; loud only if something went wrong. */
export const RunEnd = memo(function RunEnd({ end, expired, words, goOn, children }: Props) {
  const usage = end.usage ?? {};
  const facts = [
    end.turns ? plural(end.turns, "turn") : "",
    end.duration_ms ? duration(end.duration_ms) : "",
    usage.output_tokens ? `${count(usage.output_tokens)} tokens` : "",
    cost(usage),
  ].filter(Boolean);
  const what = end.outcome === "completed" ? null : ((WHAT as Partial<Record<string, What>>)[end.outcome] ?? OTHER);
  const quiet = what === null || end.outcome === "aborted";
  const tone = !quiet ? styles.loud : expired > 0 ? styles.warned : "";
  return (
    <footer className={`${styles.end} ${tone}`} data-run-end={end.outcome}>
      {what && (
        <div>
          <strong>{what.title}</strong> {end.error && <span className={styles.error}>{end.error}</span>} {what.next}
        </div>
      )}
      {expired > 0 && (
        <div>
          <strong>
            {expired === 1 ? "A request for approval expired." : `${expired} requests for approval expired.`}
          </strong>{" "}
          It was not answered in time, so {expired === 1 ? "its command" : "their commands"} did not run.
        </div>
      )}
      {goOn && <GoOn session={goOn} outcome={end.outcome} />}
      <div className={styles.facts}>
        {words && <CopyButton text={words} label="Copy the reply" />}
        {children}
        <span>{facts.join(" · ")}</span>
      </div>
    </footer>
  );
});
