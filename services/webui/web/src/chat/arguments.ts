import type { ToolCallBlock } from "../api/types";

// In this order: which argument says most about a call.
const TELLING = ["command", "cmd", "pattern", "query", "url", "path", "file_path", "name", "text", "prompt"];

/** The argument that matters, on one line; also of a call that is still being written. */
export function mainArgument(block: ToolCallBlock): string {
  const given = block.arguments ?? readSoFar(block.raw_arguments ?? "");
  const key =
    TELLING.find((name) => typeof given[name] === "string") ??
    Object.keys(given).find((name) => typeof given[name] === "string");
  if (key) return oneLine(String(given[key]));
  return Object.keys(given).length > 0 ? oneLine(JSON.stringify(given)) : "";
}

function oneLine(text: string): string {
  const line = text.trim().replace(/\s*\n\s*/g, " ⏎ ");
  return line.length > 300 ? `${line.slice(0, 300)}…` : line;
}

/** The strings in JSON that may stop anywhere. */
function readSoFar(raw: string): Record<string, unknown> {
  try {
    const whole: unknown = JSON.parse(raw);
    if (typeof whole === "object" && whole !== null) return whole as Record<string, unknown>;
  } catch {
    // Not complete yet: what is there has to do.
  }
  const found: Record<string, unknown> = {};
  for (const [, key, value] of raw.matchAll(/"(\w+)"\s*:\s*"((?:[^"\\]|\\.)*)/g)) {
    if (key !== undefined && value !== undefined) found[key] = unescape(value);
  }
  return found;
}

function unescape(value: string): string {
  try {
    return JSON.parse(`"${value}"`) as string;
  } catch {
    return value;
  }
}
