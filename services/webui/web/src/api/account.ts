import type { Me } from "./types";

/** Whether another user is logged in now: nothing that the page holds is theirs. */
export const isAnother = (before: Me | null, now: Me): boolean => before !== null && before.account !== now.account;

const PLACE = "fairlead.account";
const OF_ACCOUNT = ["fairlead.draft.", "fairlead.outbox."]; // what was written, and would go out in another name

/** Forgets what another user of this browser wrote and did not send. */
export function keepFor(account: string): void {
  try {
    const storage = localStorage;
    const before = storage.getItem(PLACE);
    if (before === account) return;
    if (before !== null) {
      const kept = Array.from({ length: storage.length }, (_, index) => storage.key(index) ?? "");
      for (const key of kept) if (OF_ACCOUNT.some((start) => key.startsWith(start))) storage.removeItem(key);
    }
    storage.setItem(PLACE, account);
  } catch {
    // Where the browser saves nothing, nothing is left of anybody.
  }
}
