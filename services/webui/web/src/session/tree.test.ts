import { describe, expect, it } from "vitest";
import type { Entry, InheritedMessage } from "../api/types";
import { foldAll, foldEntry, inherit, prepend } from "./fold";
import { endOf, placesOf, treeOf } from "./tree";
import { EMPTY_VIEW, type View } from "./view";

/** What a session's owner would have written, and beside it, by hand, what it means. */
class World {
  readonly log: Entry[] = [];
  /** Of each entry: the one that it follows. */
  readonly follows = new Map<string, string | null>();
  private leaf: string | null = null;

  constructor(private readonly chance: () => number) {
    this.add({ type: "session_info", agent: "main" });
  }

  private add(part: object, follows = this.leaf): string {
    const seq = this.log.length + 1;
    const id = `e${seq}`;
    this.log.push({ id, seq, ts: seq, ...(follows === null ? {} : { parent_id: follows }), ...part } as Entry);
    this.follows.set(id, follows);
    this.leaf = id;
    return id;
  }

  pick<T>(among: readonly T[]): T {
    return among[Math.floor(this.chance() * among.length)] as T;
  }

  step(): void {
    const n = this.log.length;
    switch (this.pick(["say", "reply", "call", "end", "mode", "go", "edit"])) {
      case "say":
        this.add({ type: "message", message: { role: "user", content: [{ type: "text", text: `said ${n}` }] } });
        break;
      case "reply":
        this.reply([{ type: "text", text: `reply ${n}` }]);
        break;
      case "call":
        this.reply([{ type: "tool_call", call_id: `c${n}`, name: "bash", arguments: {} }]);
        this.add({
          type: "message",
          message: { role: "tool_result", call_id: `c${n}`, name: "bash", outcome: { status: "ok", content: [] } },
        });
        break;
      case "end":
        this.add({ type: "run_end", run_id: `r${n}`, outcome: "completed" });
        break;
      case "mode":
        this.add({ type: "mode_change", mode: `mode ${n}` });
        break;
      case "go":
        this.add({ type: "navigate", left: this.leaf, path: [], request: "r", action: "navigate" }, this.anyEntry());
        break;
      case "edit":
        this.add({ type: "navigate", left: this.leaf, path: [], request: "r", action: "edit" }, this.anyEntry());
        this.add({ type: "message", message: { role: "user", content: [{ type: "text", text: `edited ${n}` }] } });
        break;
    }
  }

  private anyEntry(): string {
    return this.pick(this.log).id;
  }

  private reply(content: unknown[]): void {
    this.add({ type: "message", message: { role: "assistant", content, model: "m" } });
  }

  // -- what it means, told naively

  lineOf(id: string | null): string[] {
    const line: string[] = [];
    for (let at = id; at !== null; at = this.follows.get(at) ?? null) line.unshift(at);
    return line;
  }

  isSaid(id: string): boolean {
    const entry = this.log.find((one) => one.id === id);
    return entry?.type === "message" && entry.message.role !== "tool_result";
  }

  shown(): string[] {
    return this.lineOf(this.leaf).filter((id) => this.isSaid(id));
  }

  above(id: string): string | null {
    return (
      this.lineOf(id)
        .slice(0, -1)
        .findLast((one) => this.isSaid(one)) ?? null
    );
  }

  inPlaceOf(id: string): string[] {
    return this.log.map((entry) => entry.id).filter((one) => this.isSaid(one) && this.above(one) === this.above(id));
  }

  lastUnder(id: string): string | undefined {
    return this.log.findLast((entry) => this.lineOf(entry.id).includes(id))?.id;
  }
}

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const worlds = Array.from({ length: 60 }, (_, seed) => {
  const world = new World(seeded(seed + 1));
  const steps = 4 + seed;
  for (let step = 0; step < steps; step += 1) world.step();
  return world;
});

const saidIn = (view: View): string[] =>
  view.items.filter((item) => item.kind === "user" || item.kind === "assistant").map((item) => item.id);
const part = (view: View): object => ({ ...view, log: [] });

describe("random trees", () => {
  it("have branches", () =>
    expect(worlds.filter((world) => placesOf(world.log, []).of.size > 0).length).toBeGreaterThan(40));

  it.each(worlds.map((world, index) => [index, world] as const))(
    "world %i is shown as the model of it says",
    (_index, world) => {
      let view = EMPTY_VIEW;
      for (const entry of world.log) {
        view = foldEntry(view, entry);
        const line = world.lineOf(entry.id).filter((id) => world.isSaid(id));
        expect(saidIn(view)).toEqual(line);
      }
      expect(foldAll(world.log)).toEqual(view);
      expect(saidIn(view)).toEqual(world.shown());

      const { of, next } = placesOf(world.log, []);
      for (const id of world.log.map((entry) => entry.id).filter((one) => world.isSaid(one))) {
        const group = world.inPlaceOf(id);
        const place =
          group.length > 1 ? { index: group.indexOf(id), ends: group.map((one) => world.lastUnder(one)) } : undefined;
        expect(of.get(id)).toEqual(place);
      }
      const tip = world.shown().at(-1) ?? null;
      const others = world.log.map((entry) => entry.id).filter((one) => world.isSaid(one) && world.above(one) === tip);
      expect(next?.ends ?? []).toEqual(others.map((one) => world.lastUnder(one)));
    },
  );

  it.each(worlds.map((world, index) => [index, world] as const))(
    "world %i is the same when its log comes in pieces, and never shows what is not on the branch",
    (index, world) => {
      const chance = seeded(index + 1000);
      let start = world.log.length;
      let view = EMPTY_VIEW;
      while (start > 0) {
        const from = Math.max(0, start - 1 - Math.floor(chance() * 9));
        view = prepend(view, world.log.slice(from, start));
        start = from;
        const line = world.shown();
        const window = saidIn(view);
        expect(line.slice(line.length - window.length)).toEqual(window);
        if (treeOf(view.log, []).lacks === null && start === 0) expect(window).toEqual(line);
      }
      expect(part(view)).toEqual(part(foldAll(world.log)));
    },
  );

  it.each(worlds.map((world, index) => [index, world] as const))(
    "world %i is left for where it was left last",
    (_index, world) => {
      for (const place of placesOf(world.log, []).of.values())
        place.ends.forEach((end) => {
          const seq = world.log.length + 1;
          const go = {
            type: "navigate",
            id: "go",
            seq,
            parent_id: end,
            left: "",
            path: [],
            request: "r",
            action: "navigate",
          };
          const view = foldAll([...world.log, go as Entry]);
          expect(saidIn(view)).toEqual(world.lineOf(end).filter((id) => world.isSaid(id)));
          expect(endOf(view.log, [])).not.toBeNull();
        });
    },
  );
});

describe("a window that does not reach back", () => {
  const entry = (seq: number, part: object): Entry => ({ id: `e${seq}`, seq, ...part }) as Entry;
  const user = (seq: number, parent_id?: string): Entry =>
    entry(seq, { type: "message", parent_id, message: { role: "user", content: [{ type: "text", text: "x" }] } });

  it("names the entry that the live branch goes through and that is not here", () => {
    const log = [user(8, "e7"), entry(9, { type: "navigate", parent_id: "e2" }), user(10, "e9")];
    const view = foldAll(log);
    expect(treeOf(view.log, []).lacks).toBe("e2");
    expect(saidIn(view)).toEqual(["e10"]);
    const whole = prepend(view, [user(1), user(2, "e1"), user(3, "e2")]);
    expect(treeOf(whole.log, []).lacks).toBeNull();
    expect(saidIn(whole)).toEqual(["e1", "e2", "e10"]);
  });

  it("counts no versions of a message whose predecessor is not here", () => {
    const log = [user(8, "e7"), entry(9, { type: "navigate", parent_id: "e2" }), user(10, "e9")];
    expect(placesOf(log, []).of.size).toBe(0);
  });
});

describe("the end of a run", () => {
  const log = [
    { type: "message", id: "u", seq: 1, message: { role: "user", content: [] } },
    { type: "message", id: "a", seq: 2, parent_id: "u", message: { role: "assistant", content: [], model: "m" } },
    { type: "run_end", id: "end", seq: 3, parent_id: "a", run_id: "r", outcome: "failed" },
    { type: "message", id: "v", seq: 4, parent_id: "end", message: { role: "user", content: [] } },
  ] as Entry[];
  const go = (action: string, parent_id: string): Entry =>
    ({ type: "navigate", id: "n", seq: 5, parent_id, left: "v", path: [], request: "r", action }) as Entry;

  it("is told with the message that one goes on from, and cannot be gone on from any more", () => {
    const { items } = foldAll([...log, go("navigate", "a")]);
    expect(items.map((item) => item.id)).toEqual(["u", "a", "end"]);
    expect(items.at(-1)).toMatchObject({ isLeft: true });
    expect(foldAll(log).items[2]).not.toHaveProperty("isLeft");
  });

  it("is not told of a run whose message is answered again", () => {
    expect(foldAll([...log, go("regenerate", "u")]).items.map((item) => item.id)).toEqual(["u"]);
  });
});

describe("a summary", () => {
  const said = (seq: number): Entry => ({
    type: "message",
    id: `e${seq}`,
    seq,
    message: { role: "user", content: [] },
  });
  const asked = { type: "compact_request", id: "ask", seq: 3 } as Entry;
  const made = { type: "compaction", id: "sum", seq: 4, first_kept: "e2", summary: "s", request: "ask" } as Entry;

  it("stands below what it sums up, which stays in view", () => {
    const view = foldAll([said(1), said(2), asked, made, said(5)]);
    expect(view.items.map((item) => item.id)).toEqual(["e1", "e2", "sum", "e5"]);
    expect(view.undone).toEqual([]);
  });

  it("is being written until it is there, or refused", () => {
    expect(foldAll([said(1), asked]).compacting?.id).toBe("ask");
    expect(foldAll([said(1), asked, made]).compacting).toBeNull();
    const no = { type: "dropped", id: "no", seq: 4, items: ["ask"], reason: "there is nothing to summarise" } as Entry;
    const view = foldAll([said(1), asked, no]);
    expect(view.compacting).toBeNull();
    expect(view.items.at(-1)).toMatchObject({
      kind: "note",
      text: "Earlier messages were not summarised: there is nothing to summarise",
    });
  });

  it("is marked once it is taken back", () => {
    const undone = { type: "compaction_undone", id: "un", seq: 5, compaction: "sum" } as Entry;
    expect(foldAll([said(1), asked, made, undone]).undone).toEqual(["sum"]);
  });

  it("leaves room in the context window until it is taken back", () => {
    const usage = { input_tokens: 900, output_tokens: 100 };
    const reply = { type: "message", id: "a", seq: 2, message: { role: "assistant", content: [], model: "m", usage } };
    const sized = { ...made, tokens_before: 800, tokens_after: 200 };
    const undone = { type: "compaction_undone", id: "un", seq: 5, compaction: "sum" } as Entry;
    const log = [said(1), reply as Entry, sized as Entry];
    expect(foldAll(log).contextTokens).toBe(400);
    expect(foldAll([...log, undone]).contextTokens).toBe(1000);
  });
});

describe("a fork", () => {
  const log = [
    { type: "session_info", id: "i", seq: 1, agent: "main" },
    { type: "fork", id: "f", seq: 1, index: 1, parent_id: "i", origin: "other", entry: "b", object: "o" },
    {
      type: "message",
      id: "c",
      seq: 2,
      parent_id: "f",
      message: { role: "user", content: [{ type: "text", text: "c" }] },
    },
  ] as Entry[];
  const said: InheritedMessage[] = [
    ["a", { role: "user", content: [{ type: "text", text: "a" }] }],
    ["b", { role: "assistant", content: [{ type: "text", text: "b" }], model: "m" }],
  ];
  const begun = (view: View): View => inherit(view, view.log[1] as Entry & { type: "fork" }, said);

  it("begins with what was said in the other session", () => {
    const view = begun(foldAll(log));
    expect(view.items.map((item) => item.id)).toEqual(["a", "b", "f", "c"]);
  });

  it("goes on from a message of the other session", () => {
    const back = {
      type: "navigate",
      id: "n",
      seq: 3,
      parent_id: "a",
      left: "c",
      path: [],
      request: "r",
      action: "regenerate",
    };
    const view = foldEntry(begun(foldAll(log)), back as Entry);
    expect(view.items.map((item) => item.id)).toEqual(["a"]);
    expect(placesOf(view.log, view.inherited).next?.ends).toEqual(["c"]);
    expect(endOf(view.log, view.inherited)).toBe("a");
  });

  it("is not given the words of a session that had its name before", () => {
    const other = begun(foldAll(log));
    const view = inherit(
      foldAll([{ ...log[0], id: "z", seq: 9 } as Entry]),
      other.log[1] as Entry & { type: "fork" },
      said,
    );
    expect(view.items).toEqual([]);
  });
});

describe("the end of a conversation", () => {
  const said = (seq: number): Entry => ({
    type: "message",
    id: `e${seq}`,
    seq,
    message: { role: "user", content: [] },
  });

  it("is its last message, whatever was noted since", () => {
    expect(endOf([said(1), { type: "mode_change", id: "m", seq: 2, mode: "ask" }], [])).toBe("e1");
  });

  it("is no heartbeat that found nothing to do", () => {
    const quiet = { type: "custom", id: "q", seq: 3, name: "heartbeat_ok", data: { entries: ["e2"] } } as Entry;
    expect(endOf([said(1), said(2), quiet], [])).toBe("e1");
  });

  it("is the first entry where nothing was said", () => {
    expect(endOf([{ type: "session_info", id: "i", seq: 1 }], [])).toBe("i");
    expect(endOf([], [])).toBeNull();
  });
});
