/** One server-sent event. */
export interface SseMessage {
  id: string | null;
  data: string;
}

/**
 * Cuts a byte stream into server-sent events, as the HTML standard says. Feed it decoded text in pieces
 * of any size; it keeps what is not complete yet.
 */
export class SseParser {
  private rest = "";
  private data: string[] = [];
  private id: string | null = null;

  push(text: string): SseMessage[] {
    const messages: SseMessage[] = [];
    this.rest += text;
    let start = 0;
    for (;;) {
      const end = this.rest.indexOf("\n", start);
      if (end < 0) break;
      const line = this.rest.slice(start, this.rest[end - 1] === "\r" && end > start ? end - 1 : end);
      start = end + 1;
      const message = this.line(line);
      if (message) messages.push(message);
    }
    this.rest = this.rest.slice(start);
    return messages;
  }

  private line(line: string): SseMessage | null {
    if (line === "") {
      const message = this.data.length > 0 ? { id: this.id, data: this.data.join("\n") } : null;
      this.data = [];
      return message;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a comment keeps the connection alive
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    else if (field === "id") this.id = value;
    return null;
  }
}
