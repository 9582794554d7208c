/** The boundaries that commands may run in. */
export interface Sandbox {
  kind: string;
  /** In two words, for chips and lists. */
  short: string;
  /** What it means for who decides. */
  means: string;
}

/** Weakest first; `ssh` is another machine, and neither stronger nor weaker than the rest. */
export const SANDBOXES: readonly Sandbox[] = [
  { kind: "local", short: "no sandbox", means: "Commands run on the host, as the user that Fairlead runs as" },
  {
    kind: "bubblewrap",
    short: "bubblewrap",
    means: "Lightweight sandbox: read-only system, no network by default",
  },
  { kind: "docker", short: "container", means: "A container, separated from the host" },
  { kind: "ssh", short: "over ssh", means: "Another machine; can be set only in the agent’s profile" },
];

const ORDER = ["local", "bubblewrap", "docker"];

export const sandboxOf = (kind: string): Sandbox =>
  SANDBOXES.find((one) => one.kind === kind) ?? { kind, short: kind, means: "" };

/** Why somebody who may not approve cannot choose `kind` for a session that has `now`; null when they can. */
export function whyNotWider(kind: string, now: string): string | null {
  const [wish, has] = [ORDER.indexOf(kind), ORDER.indexOf(now)];
  const wider = has < 0 ? kind !== now : wish < has;
  return wider ? `weaker than ${now}, which it has now: that needs the right to approve` : null;
}

/** Why a session may not choose `kind` where its agent demands `demanded`; null when it may. */
export function whyNot(kind: string, demanded: string): string | null {
  if (kind === demanded) return null;
  const [wish, least] = [ORDER.indexOf(kind), ORDER.indexOf(demanded)];
  if (wish < 0) return "only an agent’s profile can choose it";
  if (least < 0) return `the agent wants ${demanded}, and nothing can stand in for it`;
  return wish < least ? `weaker than ${demanded}, which the agent demands` : null;
}
