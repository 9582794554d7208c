/** A tool's name in its parts: tools from elsewhere are called `mcp__<server>__<tool>`, `api__…` or `nats__…`. */
export interface ToolName {
  kind: "MCP" | "API" | "NATS" | null;
  /** The server, document or service that it comes from. */
  source: string;
  own: string;
}

const KINDS = new Map([
  ["mcp", "MCP"],
  ["api", "API"],
  ["nats", "NATS"],
] as const);

export function readToolName(name: string): ToolName {
  const [prefix = "", first = "", ...rest] = name.split("__");
  const kind = (KINDS as ReadonlyMap<string, ToolName["kind"]>).get(prefix) ?? null;
  if (!kind || !first) return { kind: null, source: "", own: name };
  return rest.length > 0 ? { kind, source: first, own: rest.join("__") } : { kind, source: "", own: first };
}
