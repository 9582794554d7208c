import { describe, expect, it } from "vitest";
import type { Entry } from "../api/types";
import { foldAll } from "./fold";

/** The same files hold the fold of the services: what a log means is told alike everywhere. */
interface Case {
  about: string;
  entries: Entry[];
  means: {
    last_seq: number;
    run: string | null;
    said: string[];
    approvals: string[];
    queue: string[];
    context_tokens: number;
    host: string | null;
  };
}

const cases = import.meta.glob<Case>("../../../../../tests/unit/common/golden/fold/*.json", {
  eager: true,
  import: "default",
});

describe("a log means the same here as in the services", () => {
  it("has cases", () => expect(Object.keys(cases).length).toBeGreaterThan(10));
  it.each(Object.values(cases))("$about", ({ entries, means }) => {
    const view = foldAll(entries);
    expect({
      last_seq: view.lastSeq,
      run: view.run?.id ?? null,
      said: view.items.filter((item) => item.kind === "user" || item.kind === "assistant").map((item) => item.id),
      approvals: view.approvals.map((request) => request.id),
      queue: view.queue.map((item) => item.id),
      context_tokens: view.contextTokens ?? 0,
      host: view.host,
    }).toEqual(means);
  });
});
