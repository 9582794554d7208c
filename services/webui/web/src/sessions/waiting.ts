import { rightsTo } from "../api/rights";
import type { Me, Session } from "../api/types";

/** How many approvals and questions wait for this person: those of sessions that they may decide in. */
export function waitingFor(who: Me | null, sessions: readonly Session[]): number {
  return sessions.reduce((sum, one) => sum + (rightsTo(who, one).approve ? (one.approvals ?? 0) : 0), 0);
}
