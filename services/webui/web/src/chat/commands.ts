import type { ServerPrompt } from "../api/types.generated";

/** What a line that begins with a slash does instead of being said. */
export interface Command {
  name: "new" | "compact";
  /** What follows its name. */
  rest: string;
}

export const COMMANDS = [
  { name: "new", means: "begins a new session" },
  { name: "compact", means: "summarises earlier messages for the model" },
] as const;

/** The command in `text`, or null: then it is a message. */
export function commandIn(text: string): Command | null {
  const found = /^\/(new|compact)(?:\s+([^]*))?$/.exec(text.trim());
  return found ? { name: found[1] as Command["name"], rest: (found[2] ?? "").trim() } : null;
}

/** Something that a text which begins with a slash can become. */
export interface Offer {
  /** With the slash. */
  name: string;
  means: string;
  /** Null: it is a command of Fairlead. */
  prompt: ServerPrompt | null;
}

/** What can be meant by a text that begins like a command: commands, and prompts of MCP servers. */
export function offersFor(text: string, prompts: readonly ServerPrompt[], takesCommands: boolean): Offer[] {
  const begun = /^\/(\S*)$/.exec(text)?.[1]?.toLowerCase();
  if (begun === undefined) return [];
  const commands = takesCommands ? COMMANDS.filter(({ name }) => name.startsWith(begun)) : [];
  const fits = (name: string): boolean => name.startsWith(begun) || (name.split(":")[1] ?? "").startsWith(begun);
  return [
    ...commands.map(({ name, means }) => ({ name: `/${name}`, means, prompt: null })),
    ...prompts
      .filter(({ server, name }) => fits(`${server}:${name}`.toLowerCase()))
      .map((prompt) => ({ name: `/${prompt.server}:${prompt.name}`, means: prompt.description, prompt })),
  ];
}
