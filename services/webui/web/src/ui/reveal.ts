export type Revealed = { text: string } | { hidden: string };

// Control characters but newline and tab, and what is invisible or turns the direction of text.
const RANGES: readonly (readonly [number, number])[] = [
  [0x00, 0x08],
  [0x0b, 0x1f],
  [0x7f, 0x9f],
  [0xad, 0xad],
  [0x34f, 0x34f],
  [0x61c, 0x61c],
  [0x115f, 0x1160],
  [0x17b4, 0x17b5],
  [0x180b, 0x180f],
  [0x200b, 0x200f],
  [0x2028, 0x202e],
  [0x2060, 0x206f],
  [0x3164, 0x3164],
  [0xfe00, 0xfe0f],
  [0xfeff, 0xfeff],
  [0xffa0, 0xffa0],
  [0xfff0, 0xfffb],
  [0xe0000, 0xe0fff],
];
const point = (code: number): string => `\\u{${code.toString(16)}}`;
const HIDDEN = new RegExp(`[${RANGES.map(([from, to]) => `${point(from)}-${point(to)}`).join("")}]`, "gu");

/** `text` cut into what can be seen and the code points of what cannot, which could deceive a reader. */
export function reveal(text: string): Revealed[] {
  const pieces: Revealed[] = [];
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > last) pieces.push({ text: text.slice(last, match.index) });
    const code = match[0].codePointAt(0) ?? 0;
    pieces.push({ hidden: `U+${code.toString(16).toUpperCase().padStart(4, "0")}` });
    last = match.index + match[0].length;
  }
  if (last < text.length) pieces.push({ text: text.slice(last) });
  return pieces;
}
