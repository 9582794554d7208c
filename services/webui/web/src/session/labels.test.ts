import { describe, expect, it } from "vitest";
import type { Entry } from "../api/types";
import { foldAll } from "./fold";
import { latestBelow } from "./tree";

describe("a label", () => {
  const said = (seq: number): Entry => ({
    type: "message",
    id: `e${seq}`,
    seq,
    message: { role: "user", content: [] },
  });
  const label = (seq: number, entry: string, name: string): Entry => ({
    type: "label",
    id: `l${seq}`,
    seq,
    entry,
    label: name,
  });
  const back = { type: "navigate", id: "n", seq: 4, parent_id: "e1", left: "e3", path: [], request: "r" };
  const log = [said(1), said(2), said(3), { ...back, action: "navigate" } as Entry, said(5)];

  it("names an entry until it is taken away, on whatever branch", () => {
    const named = [...log, label(6, "e3", "left"), label(7, "e1", "root"), label(8, "e1", "begin")];
    expect(foldAll(named).labels).toEqual({ e3: "left", e1: "begin" });
    expect(foldAll([...named, label(9, "e3", "")]).labels).toEqual({ e1: "begin" });
  });

  it("leads to where its branch was left last", () => {
    expect(latestBelow(log, [], "e2")).toBe("e3");
    expect(latestBelow(log, [], "e1")).toBe("e5");
    expect(latestBelow(log, [], "absent")).toBeNull();
  });
});

describe("a branch that is left with a summary", () => {
  const asked = {
    type: "branch_request",
    id: "r",
    seq: 2,
    action: "navigate",
    entry: "e1",
    mail_seq: 7,
    summarize: true,
  };
  const went = { type: "navigate", id: "n", seq: 3, parent_id: "e1", left: "e1", path: [], request: "r" };
  const said: Entry = { type: "message", id: "e1", seq: 1, message: { role: "user", content: [] } };

  it("is being summarised until the conversation goes on elsewhere, or the request is dropped", () => {
    expect(foldAll([said, asked as Entry]).leaving?.id).toBe("r");
    expect(foldAll([said, { ...asked, summarize: false } as Entry]).leaving).toBeNull();
    expect(foldAll([said, asked as Entry, { ...went, action: "navigate" } as Entry]).leaving).toBeNull();
    const dropped = { type: "dropped", id: "d", seq: 3, seqs: [7], items: [], reason: "no" } as Entry;
    expect(foldAll([said, asked as Entry, dropped]).leaving).toBeNull();
  });
});

describe("what one message asks for", () => {
  const start = (seq: number, options: object | null): Entry => ({
    type: "run_start",
    id: `s${seq}`,
    seq,
    run_id: `r${seq}`,
    agent: "a",
    model: "m2",
    mode: "ask",
    options,
  });
  const said = (seq: number, run: number): Entry => ({
    type: "message",
    id: `e${seq}`,
    seq,
    run_id: `r${run}`,
    message: { role: "user", content: [] },
  });
  const end = { type: "run_end", id: "x", seq: 3, run_id: "r1", outcome: "completed" } as Entry;

  it("is shown with it, and is not the session's", () => {
    const view = foldAll([start(1, { model: "m2", thinking: "high" }), said(2, 1)]);
    expect(view.items).toMatchObject([{ kind: "user", asked: "m2 · thinking high" }]);
    expect(view.model).toBeNull();
    const later = foldAll([start(1, { thinking: "low" }), said(2, 1), end, start(4, null), said(5, 4)]);
    expect(later.items.map((item) => item.kind === "user" && item.asked)).toEqual(["thinking low", false, undefined]);
    expect(later.model).toBe("m2");
  });
});
