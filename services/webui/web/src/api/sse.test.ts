import { expect, it } from "vitest";
import { SseParser } from "./sse";

const STREAM =
  ': alive\n\nevent: entry\nid: 4-2\ndata: {"a":\ndata: 1}\n\nid: 5-2\r\ndata: two\r\n\r\n: alive\n\ndata:three\n\n';
const MESSAGES = [
  { id: "4-2", data: '{"a":\n1}' },
  { id: "5-2", data: "two" },
  { id: "5-2", data: "three" },
];

it("finds the same events however the stream is cut", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < STREAM.length; at += size) found.push(...parser.push(STREAM.slice(at, at + size)));
    expect(found).toEqual(MESSAGES);
  }
});

it("gives nothing for an event that is not complete", () => {
  const parser = new SseParser();
  expect(parser.push("id: 9\ndata: half\n")).toEqual([]);
});
