import type { Session } from "../api/types";

/** What a session is called: its title, else how it begins. */
export function nameOf(session: Pick<Session, "title" | "preview">): string {
  return session.title || session.preview?.split("\n", 1)[0]?.slice(0, 80) || "New session";
}
