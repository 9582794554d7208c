import type { Entry } from "../api/types";

/** Where a walk up a branch ends: at the beginning of the session, or of what is loaded of its log. */
const ROOT = -1;
const NOT_LOADED = -2;

/** Entries of a log as the tree that they are. What an entry follows comes before it. */
export interface Tree {
  /** The loaded window of the log, with what the session was forked with. */
  readonly entries: readonly Entry[];
  /** The index of the entry that each one follows; negative where a walk up ends. */
  readonly parents: readonly number[];
  /** Indices of the entries of the live branch, from top to bottom. */
  readonly path: readonly number[];
  /**
   * Indices of ends of runs that are told with the live branch and are not on it: one goes on behind a message,
   * and the end of its run comes after that.
   */
  readonly aside: ReadonlySet<number>;
  /** Id of an entry that the live branch goes through, and that is not loaded; null if the window has it whole. */
  readonly lacks: string | null;
}

/** Messages that stand in the same place, each on a branch of its own. */
export interface Place {
  /** Of this message among them, from 0. */
  readonly index: number;
  /** For each, the entry to go to: where its branch was left last. */
  readonly ends: readonly string[];
}

export interface Places {
  /** By the id of a message that has others in its place. */
  readonly of: ReadonlyMap<string, Place>;
  /** The place of a message that would be the next; null if nothing else followed here before. */
  readonly next: Place | null;
}

const NO_PLACES: Places = { of: new Map(), next: null };
const trees = new WeakMap<readonly Entry[], { inherited: readonly Entry[]; tree: Tree; places: Places | null }>();

/** The tree of these entries. `inherited` are the messages that the session was forked with. */
export function treeOf(log: readonly Entry[], inherited: readonly Entry[]): Tree {
  return known(log, inherited).tree;
}

/** Where branches part: messages with others in their place. */
export function placesOf(log: readonly Entry[], inherited: readonly Entry[]): Places {
  const found = known(log, inherited);
  found.places ??= log.some((entry) => entry.type === "navigate") ? findPlaces(found.tree) : NO_PLACES;
  return found.places;
}

/** Id of the entry of the live branch's last message, or of the first entry: what the gateway calls the leaf. */
export function endOf(log: readonly Entry[], inherited: readonly Entry[]): string | null {
  const { entries, path } = treeOf(log, inherited);
  const hidden = hiddenIn(entries);
  const last = path.findLast((index) => addsMessage(entries[index], hidden));
  return entries[last ?? path[0] ?? 0]?.id ?? null;
}

/** Whether the live branch goes through this entry. */
export function isOnBranch(log: readonly Entry[], inherited: readonly Entry[], id: string): boolean {
  const { entries, path } = treeOf(log, inherited);
  return path.some((index) => entries[index]?.id === id);
}

/** Id of the entry where the branches through this one were left last; null: it is not loaded. */
export function latestBelow(log: readonly Entry[], inherited: readonly Entry[], id: string): string | null {
  const { entries, parents } = treeOf(log, inherited);
  const from = entries.findIndex((entry) => entry.id === id);
  if (from < 0) return null;
  const below = new Set([from]);
  let latest = from;
  for (let index = from + 1; index < entries.length; index += 1) {
    if (!below.has(parents[index] ?? ROOT)) continue;
    below.add(index);
    latest = index;
  }
  return entries[latest]?.id ?? null;
}

function known(log: readonly Entry[], inherited: readonly Entry[]) {
  let found = trees.get(log);
  if (found?.inherited !== inherited) {
    found = { inherited, tree: build(log, inherited), places: null };
    trees.set(log, found);
  }
  return found;
}

function build(log: readonly Entry[], inherited: readonly Entry[]): Tree {
  const fork = inherited.length > 0 ? log.findIndex((entry) => entry.type === "fork") : -1;
  const entries = fork < 0 ? log : [...log.slice(0, fork), ...inherited, ...log.slice(fork)];
  const at = new Map(entries.map((entry, index) => [entry.id, index]));
  const parents = entries.map((entry, index) => {
    const named = entry.type === "fork" ? undefined : at.get(entry.parent_id ?? "");
    if (named !== undefined && named < index) return named;
    if (entry.type === "navigate") return NOT_LOADED;
    if (index > 0) return index - 1; // only `navigate` goes elsewhere
    return entry.parent_id ? NOT_LOADED : ROOT;
  });
  const path: number[] = [];
  for (let index = entries.length - 1; index >= 0; index = parents[index] ?? ROOT) path.push(index);
  path.reverse();
  const top = entries[path[0] ?? 0];
  const lacks = top?.type === "navigate" && parents[path[0] ?? 0] === NOT_LOADED ? (top.parent_id ?? null) : null;
  return { entries, parents, path, aside: endsBeside(entries, parents, path), lacks };
}

function endsBeside(
  entries: readonly Entry[],
  parents: readonly number[],
  path: readonly number[],
): ReadonlySet<number> {
  const aside = new Set<number>();
  for (const index of path) {
    const entry = entries[index];
    if (entry?.type !== "navigate" || entry.action === "regenerate") continue;
    let last = parents[index] ?? ROOT;
    for (let at = last + 1; at > 0 && at < index; at += 1) {
      const next = entries[at];
      if (parents[at] !== last || next?.type === "message" || next?.type === "navigate") break;
      if (next?.type === "run_end") aside.add(at);
      last = at;
    }
  }
  return aside;
}

function findPlaces({ entries, parents }: Tree): Places {
  const hidden = hiddenIn(entries);
  const above = (index: number): number => (index < 0 ? index : (nearest[index] ?? ROOT));
  const nearest: number[] = []; // the message that each entry is, or comes after
  const after = new Map<number, number[]>(); // messages by the one that they follow
  const latest = entries.map((_, index) => index);
  entries.forEach((entry, index) => {
    const parent = above(parents[index] ?? ROOT);
    nearest.push(isSaid(entry, hidden) ? index : parent);
    if (nearest[index] !== index || parent === NOT_LOADED) return;
    const others = after.get(parent);
    if (others) others.push(index);
    else after.set(parent, [index]);
  });
  for (let index = entries.length - 1; index >= 0; index -= 1) {
    const parent = parents[index] ?? ROOT;
    if (parent >= 0) latest[parent] = Math.max(latest[parent] ?? 0, latest[index] ?? 0);
  }
  const ends = (group: readonly number[]): string[] => group.map((index) => entries[latest[index] ?? 0]?.id ?? "");
  const of = new Map<string, Place>();
  for (const group of after.values()) {
    if (group.length < 2) continue;
    const all = ends(group);
    group.forEach((member, index) => of.set(entries[member]?.id ?? "", { index, ends: all }));
  }
  const before = after.get(above(entries.length - 1)) ?? [];
  const next = before.length > 0 ? { index: before.length, ends: ends(before) } : null;
  return { of, next };
}

/** Messages of heartbeats that found nothing to do: nobody is shown them. */
function hiddenIn(entries: readonly Entry[]): ReadonlySet<unknown> {
  return new Set(
    entries.flatMap((entry) => {
      const ids = entry.type === "custom" && entry.name === "heartbeat_ok" ? entry.data?.["entries"] : null;
      return Array.isArray(ids) ? (ids as unknown[]) : [];
    }),
  );
}

function isSaid(entry: Entry, hidden: ReadonlySet<unknown>): boolean {
  return entry.type === "message" && entry.message.role !== "tool_result" && !hidden.has(entry.id);
}

function addsMessage(entry: Entry | undefined, hidden: ReadonlySet<unknown>): boolean {
  if (!entry || hidden.has(entry.id)) return false;
  return (
    entry.type === "message" || entry.type === "hook_context" || (entry.type === "navigate" && Boolean(entry.summary))
  );
}
