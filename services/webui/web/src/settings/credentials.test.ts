import { describe, expect, it } from "vitest";
import { nameProblem, usesOf, valueProblem } from "./credentials";

describe("a name", () => {
  it.each(["openai", "openai-2", "a.b_c", "0", ""])("%s is fine", (name) => expect(nameProblem(name)).toBe(""));
  it.each(["OpenAI", "-x", "a b", "ä", "a/b", "x".repeat(65)])("%s is not", (name) =>
    expect(nameProblem(name)).not.toBe(""),
  );
});

describe("a value", () => {
  it.each(["sk-abc", " sk-abc\n", "with blanks inside", ""])("%j is fine", (value) =>
    expect(valueProblem(value)).toBe(""),
  );
  it.each(["two\nlines", "schlüssel", "x".repeat(8193)])("is refused without being repeated", (value) => {
    expect(valueProblem(value)).not.toBe("");
    expect(valueProblem(value)).not.toContain(value);
  });
});

describe("what refers to a credential", () => {
  it("is told by name", () => {
    expect(usesOf({ for: "agent", used_by: ["openai"] })).toBe("Used by the provider openai");
    expect(usesOf({ for: "agent", used_by: ["a", "b"] })).toBe("Used by the providers a, b");
    expect(usesOf({ for: "agent", used_by: [] })).toBe("Not used by a provider yet");
    expect(usesOf({ for: "host:attic", used_by: [] })).toBe("For tools on attic");
  });
});
