import { describe, expect, it } from "vitest";
import type { UsageSum } from "../api/types.generated";
import { costInWords, costOf, firstDay, inOrder, labelOf, shareOf } from "./usage";

const row = (name: string, more: Partial<UsageSum> = {}): UsageSum => ({
  name,
  replies: 2,
  unpriced_replies: 0,
  input_tokens: 100,
  output_tokens: 10,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
  cost_usd: 0,
  unknown_usd: 0,
  ...more,
});

describe("rows", () => {
  it("are days with the newest first", () => {
    const rows = [row("2026-11-21"), row("2026-11-23"), row("2026-11-22")];
    expect(inOrder("day", rows).map(({ name }) => name)).toEqual(["2026-11-23", "2026-11-22", "2026-11-21"]);
  });

  it("have what cost most first, then what had most tokens, then the name", () => {
    const rows = [row("b"), row("a"), row("many", { input_tokens: 900 }), row("dear", { cost_usd: 1 })];
    expect(inOrder("agent", rows).map(({ name }) => name)).toEqual(["dear", "many", "a", "b"]);
  });

  it("are named also where there is no name", () => {
    expect(labelOf("user", "")).toBe("No one in particular");
    expect(labelOf("model", "openai/x")).toBe("openai/x");
    expect(labelOf("day", "2026-11-23")).toContain("23");
  });

  it("are compared with the one that cost most", () => {
    const rows = [row("a", { cost_usd: 2 }), row("b", { cost_usd: 1 })];
    expect(rows.map((each) => shareOf(each, rows))).toEqual([1, 0.5]);
    expect(shareOf(row("free"), [row("free")])).toBe(0);
  });
});

describe("the cost", () => {
  it("has a question mark where a price is not known", () => {
    expect(costOf(row("a"))).toBe("$0");
    expect(costOf(row("a", { unpriced_replies: 2 }))).toBe("$?");
    expect(costOf(row("a", { cost_usd: 1.5, unpriced_replies: 1 }))).toBe("$1.50 + $?");
    expect(costOf(row("a", { cost_usd: 1.5, unknown_usd: 0.25 }))).toBe("$1.50 + up to $0.25");
  });

  it("is told exactly in words", () => {
    expect(costInWords(row("a", { cost_usd: 0.0042, unpriced_replies: 1 }))).toBe(
      "$0.0042 of replies with a known price; 1 of 2 replies have no known price",
    );
  });
});

describe("a range", () => {
  it("ends today, in UTC", () => {
    const now = Date.parse("2026-03-02T00:30:00Z");
    expect(firstDay(1, now)).toBe("2026-03-02");
    expect(firstDay(7, now)).toBe("2026-02-24");
  });
});
