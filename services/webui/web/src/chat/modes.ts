import type { Mode } from "../api/types";

/** What an agent may do without asking. */
export const MODES: readonly { name: Mode; means: string }[] = [
  { name: "safe", means: "Reads only; nothing is changed" },
  { name: "ask", means: "Asks before it changes or runs anything" },
  { name: "allow-all", means: "Does what it wants within the sandbox" },
];
