import { describe, expect, it } from "vitest";
import { appendTail, EMPTY_TAIL, readable } from "./tail";

describe("the tail of an output", () => {
  it("drops what was seen, also when pieces overlap in the middle of other scripts", () => {
    let tail = appendTail(EMPTY_TAIL, "a🙂b", 0);
    expect(tail.end).toBe(3);
    tail = appendTail(tail, "🙂bc", 1);
    expect(tail).toEqual({ text: "a🙂bc", end: 4, cut: false });
    expect(appendTail(tail, "bc", 2)).toBe(tail);
  });

  it("names what is missing", () => {
    const tail = appendTail(appendTail(EMPTY_TAIL, "one\n", 0), "nine\n", 100);
    expect(tail.text).toContain("[96 characters were missed]");
    expect(appendTail(EMPTY_TAIL, "late", 500)).toEqual({ text: "late", end: 504, cut: true });
  });

  it("keeps a bounded end of whole lines", () => {
    let tail = EMPTY_TAIL;
    for (let i = 0; i < 3000; i += 1) tail = appendTail(tail, `line ${i} ${"x".repeat(90)}\n`, tail.end);
    expect(tail.text.length).toBeLessThan(100_000);
    expect(tail.text.startsWith("line ")).toBe(true);
    expect(tail.cut).toBe(true);
  });
});

describe("readable output", () => {
  it("has no colours, links or half-erased lines", () => {
    expect(readable("\u001b[32mok\u001b[0m \u001b]8;;https://x\u0007link\u001b]8;;\u0007")).toBe("ok link");
    expect(readable("10%\r50%\r100%\ndone\r\n")).toBe("100%\ndone\n");
  });
});
