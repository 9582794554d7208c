// @vitest-environment jsdom
import { beforeEach, describe, expect, it } from "vitest";
import { isAnother, keepFor } from "./account";
import type { Me } from "./types";

const who = (account: string, user = account): Me => ({ user, account, role: "operator", scopes: ["read"] });

describe("another user", () => {
  it("is one of another account, whatever the login is called", () => {
    expect(isAnother(null, who("ann"))).toBe(false);
    expect(isAnother(who("admin", "cli"), who("admin"))).toBe(false);
    expect(isAnother(who("ann"), who("bob"))).toBe(true);
  });
});

describe("what a browser keeps", () => {
  beforeEach(() => localStorage.clear());

  it("is there for the user who wrote it, and for nobody else", () => {
    localStorage.setItem("fairlead.draft.new", "half a thought"); // of a version that did not note whose it was
    localStorage.setItem("fairlead.theme", "dark");
    keepFor("ann");
    keepFor("ann");
    localStorage.setItem("fairlead.outbox.s1", "[]");
    expect(localStorage.getItem("fairlead.draft.new")).toBe("half a thought");
    keepFor("bob");
    expect([localStorage.getItem("fairlead.draft.new"), localStorage.getItem("fairlead.outbox.s1")]).toEqual([
      null,
      null,
    ]);
    expect(localStorage.getItem("fairlead.theme")).toBe("dark");
  });
});
