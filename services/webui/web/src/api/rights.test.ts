import { describe, expect, it } from "vitest";
import { may, relationTo, rightsTo, sharedInWords } from "./rights";
import type { Me } from "./types";

const who = (role: Me["role"], scopes: string[], account = "ann"): Me => ({ user: account, account, role, scopes });
const OPERATOR = who("operator", ["read", "write"]);
const APPROVER = who("approver", ["read", "write", "approve"]);
const VIEWER = who("viewer", ["read"]);
const ADMIN = who("admin", ["admin"], "admin");
const NOTHING = { write: false, approve: false, manage: false };

describe("rights of a login", () => {
  it("has what its scopes say, and with admin all", () => {
    expect(may(VIEWER, "write")).toBe(false);
    expect(may(ADMIN, "pairing")).toBe(true);
    expect(may(null, "read")).toBe(false);
  });
});

describe("a session", () => {
  const bobs = (access: "private" | "view" | "write", users: string[] = []) => ({
    owner: "bob",
    shared: { access, users },
  });
  it("is its owner's and the administrators' to manage", () => {
    expect(rightsTo(OPERATOR, { owner: "ann", shared: {} })).toEqual({ write: true, approve: false, manage: true });
    expect(rightsTo(ADMIN, bobs("private"))).toEqual({ write: true, approve: true, manage: true });
  });
  it("without an owner is for administrators", () => {
    expect(relationTo(OPERATOR, { owner: "", shared: {} })).toBe("none");
    expect(relationTo(ADMIN, { owner: "", shared: {} })).toBe("manage");
  });
  it("is for others as far as it is shared", () => {
    expect(rightsTo(APPROVER, bobs("private"))).toEqual(NOTHING);
    expect(relationTo(APPROVER, bobs("view"))).toBe("read");
    expect(rightsTo(APPROVER, bobs("view"))).toEqual(NOTHING);
    expect(rightsTo(APPROVER, bobs("write"))).toEqual({ write: true, approve: true, manage: false });
    expect(rightsTo(OPERATOR, bobs("write"))).toEqual({ write: true, approve: false, manage: false });
    expect(relationTo(OPERATOR, bobs("write", ["eve"]))).toBe("none");
    expect(relationTo(OPERATOR, bobs("write", ["eve", "ann"]))).toBe("write");
  });
  it("can be written to by nobody whose login lacks the right", () => {
    expect(rightsTo(VIEWER, bobs("write"))).toEqual(NOTHING);
    expect(rightsTo(who("admin", ["read"], "admin"), { owner: "", shared: {} })).toEqual(NOTHING);
  });
  it("says with whom it is shared", () => {
    expect(sharedInWords(bobs("private"))).toBe("");
    expect(sharedInWords(bobs("view"))).toBe("everybody may read");
    expect(sharedInWords(bobs("write", ["eve"]))).toBe("eve may read and write");
    expect(sharedInWords(bobs("view", ["a", "b", "c", "d"]))).toBe("4 users may read");
  });
});
