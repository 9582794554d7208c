import type { AssistantBlock, Delta } from "../api/types";
import type { PartialReply } from "./view";

/** A reply of which nothing is written yet. */
export function startPartial(messageId: string, model: string): PartialReply {
  return { messageId, message: { role: "assistant", content: [], model }, n: -1, gap: false };
}

/** `partial` with one more piece. A piece of another message begins a new partial in its place. */
export function foldDelta(partial: PartialReply | null, messageId: string, n: number, delta: Delta): PartialReply {
  const open = partial?.messageId === messageId ? partial : startPartial(messageId, partial?.message.model ?? "");
  if (n <= open.n) return open; // seen before
  const content = [...open.message.content];
  while (content.length < delta.index) content.push({ type: "text", text: "" });
  content[delta.index] = grow(content[delta.index], delta);
  return { ...open, n, gap: open.gap || n !== open.n + 1, message: { ...open.message, content } };
}

function grow(block: AssistantBlock | undefined, delta: Delta): AssistantBlock {
  const text = delta.text ?? "";
  switch (delta.type) {
    case "text_delta":
      return { type: "text", text: (block?.type === "text" ? block.text : "") + text };
    case "thinking_delta":
      return { type: "thinking", text: (block?.type === "thinking" ? block.text : "") + text };
    case "tool_call_delta": {
      const before = block?.type === "tool_call" ? block : null;
      return {
        type: "tool_call",
        call_id: delta.call_id ?? before?.call_id ?? "",
        name: delta.name ?? before?.name ?? "",
        raw_arguments: (before?.raw_arguments ?? "") + text,
      };
    }
  }
}
