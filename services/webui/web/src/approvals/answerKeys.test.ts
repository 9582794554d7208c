// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { answerKeys } from "./answerKeys";

describe("the keys that answer", () => {
  it("are those whose buttons the card has", () => {
    expect(answerKeys({ kind: "call", grants: { session: "`ls`" } }, "")).toBe("a, s or d");
    expect(answerKeys({ kind: "call", grants: {} }, "")).toBe("a or d");
    expect(answerKeys({ kind: "budget" }, "")).toBe("a or d");
  });
  it("only deny what this person may not allow, or may not yet be known to", () => {
    expect(answerKeys({ kind: "budget" }, "the budget of ann may be raised by admins")).toBe("d");
    expect(answerKeys({ kind: "budget" }, null)).toBe("d");
  });
  it("are none for a question, which takes words", () => {
    expect(answerKeys({ kind: "question" }, "")).toBe("");
  });
});
