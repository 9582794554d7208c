import { expect, it } from "vitest";
import { reveal } from "./reveal";

const shown = (text: string): string =>
  reveal(text)
    .map((piece) => ("hidden" in piece ? `<${piece.hidden}>` : piece.text))
    .join("");

it("shows what hides, reorders or controls, by its number", () => {
  expect(shown("rm \u202etxt.exe")).toBe("rm <U+202E>txt.exe");
  expect(shown("a\u200bb\u00adc\ufeff")).toBe("a<U+200B>b<U+00AD>c<U+FEFF>");
  expect(shown("\u0007\u001b[2J\r")).toBe("<U+0007><U+001B>[2J<U+000D>");
  expect(shown("x\u{e0041}y\u2066z\u2069")).toBe("x<U+E0041>y<U+2066>z<U+2069>");
});

it("leaves lines, tabs and all scripts as they are", () => {
  const text = "if x:\n\tprint('日本語 עברית naïve 🙂')";
  expect(reveal(text)).toEqual([{ text }]);
});
