/** What a line that begins with a slash does instead of being said. */
export interface Command {
  name: "new" | "compact";
  /** What follows its name. */
  rest: string;
}

const COMMANDS = [
  { name: "new", means: "begins a new session" },
  { name: "compact", means: "summarises earlier messages for the model" },
] as const;

/** The command in `text`, or null: then it is a message. */
export function commandIn(text: string): Command | null {
  const found = /^\/(new|compact)(?:\s+([^]*))?$/.exec(text.trim());
  return found ? { name: found[1] as Command["name"], rest: (found[2] ?? "").trim() } : null;
}

/** What can be meant by a text that begins like a command, in words. */
export function commandsLike(text: string): string {
  const begun = /^\/(\w*)$/.exec(text)?.[1];
  if (begun === undefined) return "";
  return COMMANDS.filter(({ name }) => name.startsWith(begun))
    .map(({ name, means }) => `/${name} ${means}`)
    .join(" · ");
}
