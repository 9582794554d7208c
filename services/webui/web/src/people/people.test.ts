import { describe, expect, it } from "vitest";
import { budgetText, dollars, inOrder, isLocalAddress, isOver, type ListedToken, scopesOf } from "./people";

const token = (id: string, created_at: number, expires_at = 0): ListedToken => ({
  id,
  user: "ann",
  scopes: ["read"],
  name: "",
  created_at,
  expires_at,
  last_used_at: 0,
  created_by: "ann",
  made_from: "",
});

describe("tokens", () => {
  it("are over when their time has come, and never without one", () => {
    expect(isOver(token("a", 1, 10), 10)).toBe(true);
    expect(isOver(token("a", 1, 11), 10)).toBe(false);
    expect(isOver(token("a", 1), 10)).toBe(false);
  });
  it("are listed newest first, and those that are over last", () => {
    const all = [token("old", 1), token("over", 9, 9), token("new", 5)];
    expect(inOrder(all, 10).map((one) => one.id)).toEqual(["new", "old", "over"]);
  });
  it("have no more than what their maker has", () => {
    const who = { user: "ann", account: "ann", role: "operator", scopes: ["read", "write"] } as const;
    expect(scopesOf({ ...who, scopes: [...who.scopes] })).toEqual(["read", "write"]);
    expect(scopesOf({ ...who, scopes: ["admin"] })).toHaveLength(5);
  });
});

describe("an address", () => {
  it.each(["localhost", "127.0.0.1", "[::1]", "fairlead.localhost"])("%s is of this machine alone", (host) =>
    expect(isLocalAddress(host)).toBe(true),
  );
  it.each(["fairlead.example", "192.168.1.7", "box.tail1.ts.net"])("%s is not", (host) =>
    expect(isLocalAddress(host)).toBe(false),
  );
});

describe("budgets", () => {
  it("are typed as people write amounts", () => {
    expect(["", " 5 ", "$2.50", "2,5", "0"].map(dollars)).toEqual([0, 5, 2.5, 2.5, 0]);
    expect(["much", "-1", "1e9", "1.2.3"].map(dollars)).toEqual([null, null, null, null]);
  });
  it("are told in words", () => {
    expect(budgetText({ budget: {} })).toBe("");
    expect(budgetText({ budget: { usd_per_day: 5, usd_per_month: 60.5 } })).toBe("$5.00 a day, $60.50 a month");
    expect(budgetText({ budget: { usd_per_day: 0.005 } })).toBe("$0.0050 a day");
  });
});
