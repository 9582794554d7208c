/** `4 s`, `1 min 20 s`, `2 h 5 min`, `6 d 23 h`; below ten seconds with one decimal, below one in milliseconds. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Whole seconds since `ms`, for clocks that tick. */
export function elapsed(ms: number): string {
  return ms < 1000 ? "0 s" : duration(Math.floor(ms / 1000) * 1000).replace(".0", "");
}

/** `now`, `5 min`, `3 h`, `Tue`, `12 Nov`. */
export function ago(then: number, now: number = Date.now()): string {
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 60 * 24) return `${Math.floor(minutes / 60)} h`;
  const date = new Date(then);
  if (minutes < 60 * 24 * 7) return date.toLocaleDateString(undefined, { weekday: "short" });
  return date.toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

export function clock(ts: number): string {
  return new Date(ts).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** `840`, `12.4k`, `1.2M`. */
export function count(n: number): string {
  if (n < 1000) return String(n);
  if (n < 100_000) return `${(n / 1000).toFixed(1).replace(/\.0$/, "")}k`;
  if (n < 1_000_000) return `${Math.round(n / 1000)}k`;
  return `${(n / 1_000_000).toFixed(1).replace(/\.0$/, "")}M`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(n < 10_240 ? 1 : 0)} KiB`;
  if (n < 1024 ** 3) return `${(n / 1024 ** 2).toFixed(1)} MiB`;
  return `${(n / 1024 ** 3).toFixed(1)} GiB`;
}

export function money(usd: number): string {
  if (usd === 0) return "$0";
  if (usd < 0.01) return "<$0.01";
  return `$${usd.toFixed(2)}`;
}

/** What replies cost: "$0.02", "$?" if no price is known, "$0.02 + $?" if some are not; empty if nothing. */
export function cost({ cost_usd = 0, unpriced_replies = 0 }: { cost_usd?: number; unpriced_replies?: number }): string {
  const known = cost_usd > 0 ? money(cost_usd) : "";
  if (!unpriced_replies) return known;
  return known ? `${known} + $?` : "$?";
}

export const plural = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

/** A message of the gateway as a sentence: it begins with a small letter and has no full stop. */
export function sentence(message: string): string {
  const begun = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
