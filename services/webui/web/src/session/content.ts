import type { ContentBlock, ImageBlock, TextBlock } from "../api/types";
import type { AttachedFile } from "./view";

/** What a person said, apart from what came with it. */
export interface Content {
  text: string;
  images: ImageBlock[];
  files: AttachedFile[];
}

// How agents of earlier versions wrote an attached file into the message: one block, after the words.
const ATTACHED = /^\[attached file (.+), ([\w.+-]+\/[\w.+-]+), (\d+) bytes\](?:\n([^]*))?$/;

/** The words of a message, its pictures and its files. A message of files alone has their names for words. */
export function contentOf(content: readonly ContentBlock[]): Content {
  const texts: string[] = [];
  const images: ImageBlock[] = [];
  const files: AttachedFile[] = [];
  content.forEach((block, index) => {
    if (block.type === "image") images.push(block);
    else {
      const file = fileOf(block, index);
      if (file === null) texts.push(block.text);
      else files.push(file);
    }
  });
  const pictures = new Set(images.map((image) => image.object));
  const others = files.filter((file) => file.object === null || !pictures.has(file.object));
  const text = texts.join("\n");
  const names = namesFor([...images.map((image) => image.name ?? ""), ...others.map((file) => file.name)]);
  return { text: names !== "" && text === names ? "" : text, images, files: others };
}

function fileOf(block: TextBlock, index: number): AttachedFile | null {
  const named = block.file;
  if (named) {
    const head = block.text.indexOf("\n");
    return {
      name: named.name,
      mediaType: named.media_type,
      bytes: named.size_bytes ?? 0,
      text: head < 0 ? null : block.text.slice(head + 1),
      object: named.object,
    };
  }
  const found = index > 0 ? ATTACHED.exec(block.text) : null;
  if (!found) return null;
  return {
    name: found[1] ?? "",
    mediaType: found[2] ?? "",
    bytes: Number(found[3]),
    text: found[4] ?? null,
    object: null,
  };
}

/** What is said with files that come without words: a message must have some. */
export function namesFor(names: readonly string[]): string {
  return [...names].sort().join(", ");
}
