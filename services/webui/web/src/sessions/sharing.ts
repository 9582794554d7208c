import { useEffect, useState } from "react";
import { request } from "../api/client";
import { useIsAdmin } from "../api/rights";
import { createStore } from "../session/store";
import type { ListedUser, Sharing, UserList } from "../api/types.generated";

export type Access = NonNullable<Sharing["access"]>;

/** The session whose sharing is open. */
export const sharingOf = createStore<string | null>(null);

export const openSharing = (id: string): void => sharingOf.set(() => id);

export const ACCESSES: readonly { access: Access; label: string; means: string }[] = [
  { access: "private", label: "Private", means: "Nobody but you and administrators" },
  { access: "view", label: "Others may read", means: "And fork it into their own session" },
  {
    access: "write",
    label: "Others may read and write",
    means: "Also prompt, steer, stop and change it; approvers may decide about its calls",
  },
];

const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const MOST_NAMES = 100;

/** What is wrong with the name of a user; empty: nothing. */
export function userNameProblem(name: string): string {
  if (name === "") return "";
  if (name.length > 64) return `At most 64 characters, this has ${name.length}.`;
  return NAME.test(name) ? "" : "Small letters, digits, _ and - only; a letter or digit first.";
}

/** Names in a text, each once, in their order. */
export function namesIn(text: string): string[] {
  return [
    ...new Set(
      text
        .toLowerCase()
        .split(/[\s,;]+/)
        .filter(Boolean),
    ),
  ];
}

/** The names with those of `text` behind them, or why they cannot be added. */
export function withNames(names: readonly string[], text: string): { names: readonly string[]; problem: string } {
  const added = namesIn(text).filter((name) => !names.includes(name));
  const wrong = added.find((name) => userNameProblem(name));
  if (wrong) return { names, problem: `${wrong}: ${userNameProblem(wrong)}` };
  const all = [...names, ...added];
  return all.length > MOST_NAMES
    ? { names, problem: `At most ${MOST_NAMES} users, these are ${all.length}. Share it with everybody instead.` }
    : { names: all, problem: "" };
}

/** All users; only administrators may ask for them. */
export async function listUsers(signal?: AbortSignal): Promise<ListedUser[]> {
  return ((await (await request("GET", "/api/users", undefined, signal)).json()) as UserList).users;
}

/** Names to choose from; the gateway tells them to administrators alone, and others type them. */
export function useUserNames(): readonly string[] {
  const admin = useIsAdmin();
  const [names, setNames] = useState<readonly string[]>([]);
  useEffect(() => {
    if (!admin) return;
    const leaving = new AbortController();
    listUsers(leaving.signal).then(
      (users) => setNames(users.filter((user) => user.name !== "admin").map((user) => user.name)),
      () => undefined,
    );
    return () => leaving.abort();
  }, [admin]);
  return names;
}
