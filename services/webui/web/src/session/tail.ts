/** The end of a running tool's output. `end` is its position in the whole output, in characters. */
export interface Tail {
  text: string;
  end: number;
  /** The beginning is not here any more. */
  cut: boolean;
}

const KEPT = 48_000;
export const EMPTY_TAIL: Tail = { text: "", end: 0, cut: false };

/** `tail` with a piece that begins at `offset`: repeats are dropped, what is missing is named. */
export function appendTail(tail: Tail, piece: string, offset: number): Tail {
  const points = countPoints(piece);
  if (offset + points <= tail.end) return tail;
  let text = tail.text;
  let cut = tail.cut;
  if (offset > tail.end) {
    if (tail.end === 0) cut = true;
    else text += `\n[${offset - tail.end} characters were missed]\n`;
  }
  text +=
    offset < tail.end
      ? Array.from(piece)
          .slice(tail.end - offset)
          .join("")
      : piece;
  if (text.length > 2 * KEPT) {
    text = text.slice(text.indexOf("\n", text.length - KEPT) + 1);
    cut = true;
  }
  return { text, end: offset + points, cut };
}

/** Characters as the executors count them: code points, not UTF-16 units. */
function countPoints(text: string): number {
  let count = text.length;
  for (let i = 0; i < text.length; i += 1) {
    const unit = text.charCodeAt(i);
    if (unit >= 0xd800 && unit < 0xdc00 && i + 1 < text.length) count -= 1;
  }
  return count;
}

// CSI, OSC and two-byte escapes of terminals.
// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/** Output as a person would see it: without colours, and with progress lines overwritten. */
export function readable(output: string): string {
  const text = output.includes("\u001b") ? output.replace(ESCAPES, "") : output;
  if (!text.includes("\r")) return text;
  return text
    .replaceAll("\r\n", "\n")
    .split("\n")
    .map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\r+$/, ""))
    .join("\n");
}
