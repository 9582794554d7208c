import { expect, test } from "vitest";
import { contentOf, namesFor } from "./content";

const text = (words: string) => ({ type: "text" as const, text: words });
const picture = { type: "image" as const, object: "o1", media_type: "image/png", name: "a.png" };

test("attached files are apart from the words, with what the model was shown of them", () => {
  const found = contentOf([
    text("look at this"),
    text("[attached file notes, old.txt, text/plain, 12 bytes]\nline one\nline two"),
    picture,
    text("[attached file data.bin, application/octet-stream, 9000 bytes]"),
  ]);
  expect(found.text).toBe("look at this");
  expect(found.files).toEqual([
    { name: "notes, old.txt", mediaType: "text/plain", bytes: 12, text: "line one\nline two" },
    { name: "data.bin", mediaType: "application/octet-stream", bytes: 9000, text: null },
  ]);
  expect(found.images).toEqual([picture]);
});

test("what a person wrote is never taken for a file", () => {
  const words = "[attached file a.txt, text/plain, 3 bytes]\nabc";
  expect(contentOf([text(words)])).toEqual({ text: words, images: [], files: [] });
});

test("a message of files alone shows no words", () => {
  const words = namesFor(["b.txt", "a.png"]);
  expect(words).toBe("a.png, b.txt");
  const found = contentOf([text(words), picture, text("[attached file b.txt, text/plain, 1 bytes]\nx")]);
  expect(found.text).toBe("");
  expect(found.files.map((file) => file.name)).toEqual(["b.txt"]);
});
