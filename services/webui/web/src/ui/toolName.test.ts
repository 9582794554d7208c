import { expect, test } from "vitest";
import { readToolName } from "./toolName";

test("names of tools from elsewhere fall into kind, source and own name", () => {
  expect(readToolName("mcp__github__create_issue")).toEqual({ kind: "MCP", source: "github", own: "create_issue" });
  expect(readToolName("api__pets__get__by_id")).toEqual({ kind: "API", source: "pets", own: "get__by_id" });
  expect(readToolName("nats__weather")).toEqual({ kind: "NATS", source: "", own: "weather" });
});

test("a built-in tool, or a name that only looks alike, stays as it is", () => {
  for (const name of ["bash", "my__tool", "mcp__", "mcp", "constructor__a__b", ""])
    expect(readToolName(name)).toEqual({ kind: null, source: "", own: name });
});
