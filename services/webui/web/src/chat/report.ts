import type { Json, ToolOutcome } from "../api/types";

/** One thing that a check found: a test that failed, a line that a linter or a type checker names. */
export interface Problem {
  /** `file:line`, as far as it is known. */
  place: string;
  /** Name of the test, or code of the rule. */
  what: string;
  message: string;
  warning: boolean;
}

/** What a tool reports beside its text, made for people. */
export type Report =
  | { kind: "check"; counts: readonly Count[]; problems: readonly Problem[]; total: number }
  /** `tag`: the one that matters before the call is opened. */
  | { kind: "facts"; facts: readonly Fact[]; tag?: string };

export interface Count {
  name: string;
  number: number;
  tone: "good" | "bad" | "warn" | "calm";
}

export interface Fact {
  name: string;
  value: string;
  /** An address that a click may open. */
  link?: string;
}

const CHECKS = new Set(["run_tests", "run_lint", "check_types"]);
const PROCESSES = new Set(["process", "process_control"]);
const TONES = new Map<string, Count["tone"]>([
  ["passed", "good"],
  ["packages_passed", "good"],
  ["failed", "bad"],
  ["errors", "bad"],
  ["warnings", "warn"],
]);

/** The report of the built-in tool `name`, if it made one. */
export function reportOf(name: string, outcome: ToolOutcome): Report | null {
  const details = outcome.details;
  if (!details) return null;
  if (CHECKS.has(name)) return checkOf(details);
  if (name === "bash") return backgroundOf(details);
  const facts = name === "web_fetch" ? pageFacts(details) : PROCESSES.has(name) ? processFacts(details) : [];
  return facts.length > 0 ? { kind: "facts", facts } : null;
}

function checkOf(details: Json): Report | null {
  const counts = Object.entries(record(details["counts"])).flatMap(([name, number]): Count[] =>
    typeof number === "number" && number > 0
      ? [{ name: name.replaceAll("_", " "), number, tone: TONES.get(name) ?? "calm" }]
      : [],
  );
  const listed = Array.isArray(details["problems"]) ? details["problems"] : [];
  const problems = listed.map((one) => problemOf(record(one)));
  const total = details["problems_total"];
  if (counts.length === 0 && problems.length === 0) return null;
  return { kind: "check", counts, problems, total: typeof total === "number" ? total : problems.length };
}

function problemOf(found: Json): Problem {
  const line = typeof found["line"] === "number" ? String(found["line"]) : "";
  return {
    place: [text(found["file"]), line].filter(Boolean).join(":"),
    what: text(found["test"]) || text(found["code"]),
    message: text(found["message"]),
    warning: found["severity"] === "warning",
  };
}

/** Where a page was found in the end matters: what was asked for may have led elsewhere. */
function pageFacts(details: Json): Fact[] {
  const [asked, final] = [text(details["url"]), text(details["final_url"])];
  const facts: Fact[] = [];
  if (text(details["title"])) facts.push({ name: "Title", value: text(details["title"]) });
  if (final) facts.push({ name: final === asked ? "Page" : "Ended at", value: final, ...linkTo(final) });
  if (typeof details["status"] === "number")
    facts.push({ name: "Status", value: [String(details["status"]), text(details["media_type"])].join(" ").trim() });
  if (details["cut"] === true) facts.push({ name: "Length", value: "only its beginning was read" });
  return facts;
}

function processFacts(details: Json): Fact[] {
  const facts: Fact[] = [];
  if (text(details["command"])) facts.push({ name: "Command", value: text(details["command"]) });
  const state = text(details["state"]);
  const code = details["exit_code"];
  const seconds = details["seconds"];
  if (state) {
    const how = typeof code === "number" ? ` with exit code ${code}` : "";
    const time =
      typeof seconds === "number" ? ` ${state === "running" ? "for" : "after"} ${Math.round(seconds)} s` : "";
    facts.push({ name: "State", value: `${state}${how}${time}` });
  }
  return facts;
}

/** A command that was let go of says under which name it runs on. */
function backgroundOf(details: Json): Report | null {
  const process = text(details["process"]);
  return process ? { kind: "facts", facts: [{ name: "Process", value: process }], tag: "in the background" } : null;
}

function linkTo(url: string): { link?: string } {
  return /^https:\/\//i.test(url) ? { link: url } : {};
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");

function record(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}
