import type { ContentBlock, ImageBlock } from "../api/types";
import type { AttachedFile } from "./view";

/** What a person said, apart from what came with it. */
export interface Content {
  text: string;
  images: ImageBlock[];
  files: AttachedFile[];
}

// How the agent service writes an attached file into the message: one block, after the words.
const ATTACHED = /^\[attached file (.+), ([\w.+-]+\/[\w.+-]+), (\d+) bytes\](?:\n([^]*))?$/;

/** The words of a message, its pictures and its files. A message of files alone has their names for words. */
export function contentOf(content: readonly ContentBlock[]): Content {
  const texts: string[] = [];
  const images: ImageBlock[] = [];
  const files: AttachedFile[] = [];
  content.forEach((block, index) => {
    if (block.type === "image") {
      images.push(block);
      return;
    }
    const found = index > 0 ? ATTACHED.exec(block.text) : null;
    if (found)
      files.push({
        name: found[1] ?? "",
        mediaType: found[2] ?? "",
        bytes: Number(found[3]),
        text: found[4] ?? null,
      });
    else texts.push(block.text);
  });
  const text = texts.join("\n");
  const names = namesFor([...images.map((image) => image.name ?? ""), ...files.map((file) => file.name)]);
  return { text: names !== "" && text === names ? "" : text, images, files };
}

/** What is said with files that come without words: a message must have some. */
export function namesFor(names: readonly string[]): string {
  return [...names].sort().join(", ");
}
