import { request } from "../api/client";
import type { Credential, CredentialList } from "../api/types.generated";

export type { Credential } from "../api/types.generated";

/** Who opens the keys of model providers. */
export const AGENT = "agent";

const TEST_MS = 20_000;
const MOST_CHARS = 8192;

const path = (name: string): string => `/api/credentials/${encodeURIComponent(name)}`;
const query = (recipient: string): string => (recipient === AGENT ? "" : `?for=${encodeURIComponent(recipient)}`);

/** Stored credentials: their values can be set and used, and never read. */
export const credentials = {
  list: async (signal?: AbortSignal): Promise<Credential[]> => {
    const answer = await request("GET", "/api/credentials", undefined, signal);
    return ((await answer.json()) as CredentialList).credentials;
  },
  put: (name: string, recipient: string, value: string) => request("PUT", path(name), { value, for: recipient }),
  remove: (name: string, recipient: string) => request("DELETE", `${path(name)}${query(recipient)}`),
  test: async (name: string, recipient: string): Promise<Credential> => {
    const within = AbortSignal.timeout(TEST_MS);
    const answer = await request("POST", `${path(name)}/test${query(recipient)}`, {}, within);
    return (await answer.json()) as Credential;
  },
};

/** What is wrong with a name; empty: nothing. */
export function nameProblem(name: string): string {
  if (name === "") return "";
  if (name.length > 64) return "At most 64 characters.";
  if (!/^[a-z0-9]/.test(name)) return "Must begin with a lowercase letter or a digit.";
  return /^[a-z0-9_.-]+$/.test(name) ? "" : "Only lowercase letters, digits, and . _ -";
}

/** What is wrong with a value, which is not repeated; empty: nothing. Blanks around it are left out. */
export function valueProblem(value: string): string {
  const kept = value.trim();
  if (kept.length > MOST_CHARS) return `At most ${MOST_CHARS.toLocaleString()} characters.`;
  return /^[ -~]*$/.test(kept) ? "" : "One line of ASCII characters: no line breaks, no accents.";
}

/** Who can open it, in words. */
export function recipientOf(recipient: string): string {
  return recipient === AGENT ? "model providers" : `tools on ${recipient.replace(/^host:/, "")}`;
}

/** What refers to it, in words. */
export function usesOf({ for: recipient, used_by: used }: Pick<Credential, "for" | "used_by">): string {
  if (recipient !== AGENT) return `For ${recipientOf(recipient)}`;
  if (used.length === 0) return "Not used by a provider yet";
  return `Used by ${used.length === 1 ? "the provider" : "the providers"} ${used.join(", ")}`;
}
