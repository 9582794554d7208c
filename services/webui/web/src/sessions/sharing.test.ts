import { describe, expect, it } from "vitest";
import { namesIn, userNameProblem, withNames } from "./sharing";

describe("names of users", () => {
  it("are taken from what is typed or pasted", () => {
    expect(namesIn(" Ann, bob;\n eve  bob")).toEqual(["ann", "bob", "eve"]);
    expect(namesIn(" ,")).toEqual([]);
  });
  it("are checked before they are sent", () => {
    expect(userNameProblem("ann-2")).toBe("");
    expect(userNameProblem("-ann")).not.toBe("");
    expect(userNameProblem("a".repeat(65))).toContain("65");
  });
  it("are added once, and none of them if one is wrong", () => {
    expect(withNames(["ann"], "bob ann")).toEqual({ names: ["ann", "bob"], problem: "" });
    expect(withNames(["ann"], "bob <b>")).toMatchObject({ names: ["ann"] });
    const many = Array.from({ length: 101 }, (_, n) => `u${n}`).join(" ");
    expect(withNames([], many).problem).toContain("101");
  });
});
