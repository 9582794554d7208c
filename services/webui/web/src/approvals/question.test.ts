import { describe, expect, it } from "vitest";
import { questionIn, valuesAtFirst, valuesToSend } from "./question";

const asked = questionIn({
  question: "Which?",
  server: "shop",
  fields: [
    { name: "size", kind: "choice", required: true, choices: [{ value: "s", title: "Small" }] },
    { name: "count", kind: "integer", default: 2 },
    { name: "note" },
    { name: "gift", kind: "boolean" },
    { name: "extras", kind: "choices", default: ["a"] },
  ],
});

describe("the form of a server", () => {
  it("begins with what the server proposes", () => {
    expect(valuesAtFirst(asked.fields)).toEqual({ size: "", count: "2", note: "", gift: false, extras: ["a"] });
  });

  it("sends nothing for a field that was left empty and may be", () => {
    const values = { ...valuesAtFirst(asked.fields), size: "s", extras: [] };
    expect(valuesToSend(asked.fields, values)).toEqual({ size: "s", count: "2", gift: false });
  });

  it("opens nothing but pages", () => {
    expect(questionIn({ question: "x", url: "javascript:alert(1)" }).url).toBe("");
    expect(questionIn({ question: "x", url: "https://example.org/" }).url).toBe("https://example.org/");
  });
});
