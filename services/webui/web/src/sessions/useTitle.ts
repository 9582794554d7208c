import { useEffect } from "react";
import { me } from "../api/rights";
import { waitingApprovals, waitingFor } from "../approvals/waiting";
import type { Route } from "../routes";
import { useStore } from "../session/store";
import { sessionList } from "./list";
import { nameOf } from "./names";

/** Keeps the title of the browser's tab: how many approvals wait, and where one is. */
export function useTitle(route: Route): void {
  const who = useStore(me, (state) => state);
  const approvals = useStore(waitingApprovals, (state) => state);
  const waiting = useStore(sessionList, (list) => waitingFor(who, approvals, list.sessions));
  const name = useStore(sessionList, (list) => {
    if (route.page === "approvals") return "Approvals";
    if (route.page === "schedules") return "Schedules";
    if (route.page === "executors") return "Executors";
    if (route.page === "usage") return "Usage";
    if (route.page === "runs") return "Runs";
    if (route.page === "settings") return "Settings";
    const session = route.page === "session" ? list.sessions.find((s) => s.id === route.id) : undefined;
    return session ? nameOf(session) : null;
  });

  useEffect(() => {
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${name ? `${name} · ` : ""}Fairlead`;
  }, [waiting, name]);
}
