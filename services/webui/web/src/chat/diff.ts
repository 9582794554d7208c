import type { ToolOutcome } from "../api/types";

export interface DiffLine {
  kind: "added" | "removed" | "same" | "hunk" | "file";
  before: number | null;
  after: number | null;
  text: string;
}

/** The unified diff that an edit reports, if it does. */
export function diffOf(outcome: ToolOutcome): string | null {
  const diff = outcome.details?.["diff"];
  return typeof diff === "string" && diff.trim() ? diff : null;
}

export function diffCounts(diff: string): { added: number; removed: number } {
  const lines = readDiff(diff);
  return {
    added: lines.filter((line) => line.kind === "added").length,
    removed: lines.filter((line) => line.kind === "removed").length,
  };
}

/** A unified diff, line by line, with the numbers of the lines before and after. */
export function readDiff(diff: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let before = 0;
  let after = 0;
  // How many lines of the hunk are to come: what follows them is no change, even if it looks like one (`--- a`).
  let left = 0;
  let right = 0;
  for (const text of diff.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(text);
    if (hunk) {
      before = Number(hunk[1]);
      left = Number(hunk[2] ?? 1);
      after = Number(hunk[3]);
      right = Number(hunk[4] ?? 1);
      lines.push({ kind: "hunk", before: null, after: null, text });
    } else if (text.startsWith("\\")) lines.push({ kind: "hunk", before: null, after: null, text });
    else if (right > 0 && text.startsWith("+")) {
      right -= 1;
      lines.push({ kind: "added", before: null, after: after++, text: text.slice(1) });
    } else if (left > 0 && text.startsWith("-")) {
      left -= 1;
      lines.push({ kind: "removed", before: before++, after: null, text: text.slice(1) });
    } else if (left > 0 && right > 0 && /^(?: |$)/.test(text)) {
      left -= 1;
      right -= 1;
      lines.push({ kind: "same", before: before++, after: after++, text: text.slice(1) });
    } else {
      left = right = 0;
      lines.push({ kind: "file", before: null, after: null, text });
    }
  }
  return lines;
}
