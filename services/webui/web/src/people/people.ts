import { request } from "../api/client";
import { may } from "../api/rights";
import type { Me } from "../api/types";
import type {
  ListedToken,
  ListedUser,
  MadePairing,
  MadeToken,
  NewPairing,
  NewPassword,
  NewToken,
  NewUser,
  TokenList,
  UserChange,
} from "../api/types.generated";

export type { ListedToken, ListedUser, MadePairing, MadeToken } from "../api/types.generated";
export type Role = ListedUser["role"];
export type Scope = ListedToken["scopes"][number];

export const ROLES: readonly { role: Role; means: string }[] = [
  { role: "viewer", means: "Reads what it is shown" },
  { role: "operator", means: "Also creates sessions, and prompts and changes its own; runs jobs" },
  { role: "approver", means: "Also decides about tool calls, and widens what runs without asking" },
  { role: "admin", means: "Sees and changes everything: users, tokens, credentials" },
];

export const SCOPES: readonly { scope: Scope; means: string }[] = [
  { scope: "read", means: "see sessions and lists" },
  { scope: "write", means: "create sessions, prompt, run jobs" },
  { scope: "approve", means: "decide about tool calls" },
  { scope: "pairing", means: "make codes for other devices and people" },
  { scope: "admin", means: "everything" },
];

const DAY_S = 86_400;
export const LIFETIMES: readonly { label: string; s: number | null }[] = [
  { label: "7 days", s: 7 * DAY_S },
  { label: "30 days", s: 30 * DAY_S },
  { label: "90 days", s: 90 * DAY_S },
  { label: "1 year", s: 365 * DAY_S },
  { label: "Never", s: null },
];

/** What a token of one's own can be given. */
export const scopesOf = (who: Me | null): readonly Scope[] =>
  SCOPES.map((one) => one.scope).filter((scope) => may(who, scope));

async function json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await request(method, path, body, signal)).json()) as T;
}
const user = (name: string): string => `/api/users/${encodeURIComponent(name)}`;

export const people = {
  add: (body: NewUser) => json<ListedUser>("POST", "/api/users", body),
  change: (name: string, body: UserChange) => json<ListedUser>("PATCH", user(name), body),
  remove: (name: string) => request("DELETE", user(name)),
  tokens: (signal?: AbortSignal) =>
    json<TokenList>("GET", "/api/tokens", undefined, signal).then((answer) => answer.tokens),
  makeToken: (body: NewToken) => json<MadeToken>("POST", "/api/tokens", body),
  revoke: (id: string) => request("DELETE", `/api/tokens/${encodeURIComponent(id)}`),
  setPassword: (name: string, body: NewPassword) => request("PUT", `${user(name)}/password`, body),
  removePassword: (name: string) => request("DELETE", `${user(name)}/password`),
  pair: (body: NewPairing) => json<MadePairing>("POST", "/api/pair", body),
};

const MOST_DOLLARS = 1_000_000;

/** An amount as it is typed; empty: 0, which is no limit; null: it is none. */
export function dollars(text: string): number | null {
  const amount = Number(text.trim().replace(/^\$/, "").replace(",", "."));
  return Number.isFinite(amount) && amount >= 0 && amount <= MOST_DOLLARS ? amount : null;
}

/** What models may cost for a user, in words; empty: there is no limit. */
export function budgetText({ budget }: Pick<ListedUser, "budget">): string {
  const parts = [
    budget.usd_per_day ? `${limitText(budget.usd_per_day)} a day` : "",
    budget.usd_per_month ? `${limitText(budget.usd_per_month)} a month` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

/** Whether a token is worth anything now. */
export const isOver = (token: ListedToken, now: number): boolean => token.expires_at > 0 && token.expires_at <= now;

/** Newest first; those that are over last. */
export function inOrder(tokens: readonly ListedToken[], now: number): ListedToken[] {
  return [...tokens].sort(
    (a, b) =>
      Number(isOver(a, now)) - Number(isOver(b, now)) || b.created_at - a.created_at || a.id.localeCompare(b.id),
  );
}

/** Whether other machines cannot reach this address. */
export function isLocalAddress(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127\./.test(host);
}

/** A limit, in cents where it is a number of cents. */
const limitText = (usd: number): string => `$${usd.toFixed(usd.toFixed(4).endsWith("00") ? 2 : 4)}`;
