import { describe, expect, it } from "vitest";
import { commandIn, commandsLike } from "./commands";

describe("a line that begins with a slash", () => {
  it("is a command with what follows it", () => {
    expect(commandIn("/compact")).toEqual({ name: "compact", rest: "" });
    expect(commandIn("/compact keep the names\nand dates ")).toEqual({
      name: "compact",
      rest: "keep the names\nand dates",
    });
    expect(commandIn("/new hello")).toEqual({ name: "new", rest: "hello" });
  });

  it("is a message if it names no command", () => {
    for (const text of ["/newer", "/etc/hosts is wrong", "say /new", "/", "compact"])
      expect(commandIn(text)).toBeNull();
  });

  it("is explained while it is typed", () => {
    expect(commandsLike("/c")).toContain("/compact");
    expect(commandsLike("/c")).not.toContain("/new");
    expect(commandsLike("/").split(" · ")).toHaveLength(2);
    expect(commandsLike("/etc/hosts")).toBe("");
    expect(commandsLike("hello")).toBe("");
  });
});
