import { describe, expect, it } from "vitest";
import { commandIn, offersFor } from "./commands";

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

  it("is offered commands and the prompts of MCP servers while it is typed", () => {
    const named = (server: string, name: string) => ({
      server,
      name,
      description: `${name} it`,
      arguments: [],
      completes: false,
    });
    const prompts = [named("hub", "compare"), named("desk", "review")];
    const names = (text: string, takesCommands = true): string[] =>
      offersFor(text, prompts, takesCommands).map((offer) => offer.name);
    expect(names("/")).toEqual(["/new", "/compact", "/hub:compare", "/desk:review"]);
    expect(names("/", false)).toEqual(["/hub:compare", "/desk:review"]);
    expect(names("/c")).toEqual(["/compact", "/hub:compare"]);
    expect(names("/desk:R")).toEqual(["/desk:review"]);
    for (const text of ["/etc/hosts", "hello", "/desk:review please", ""]) expect(names(text)).toEqual([]);
  });
});
