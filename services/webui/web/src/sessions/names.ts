import type { Session } from "../api/types";
import { clock } from "../ui/format";

type Named = { title?: string | null; preview?: string | null } & Partial<Pick<Session, "id" | "created_at">>;

/** What a session is called: its title, else how it begins, else what tells it from others. */
export function nameOf({ title, preview, id, created_at }: Named): string {
  const known = title || preview?.split("\n", 1)[0]?.slice(0, 80);
  if (known) return known;
  if (id === "main") return "Main session";
  return created_at ? `New session, ${clock(created_at)}` : "New session";
}
