import { useCallback, useEffect, useState } from "react";
import { api } from "../api/client";
import { onNews } from "../api/news";
import { may, me, rightsTo } from "../api/rights";
import type { Approval } from "../api/types";
import { PageHead } from "../chat/PageHead";
import { Link, sessionPath } from "../routes";
import { useStore } from "../session/store";
import { sessionList } from "../sessions/list";
import { nameOf } from "../sessions/names";
import { plural } from "../ui/format";
import { complain } from "../ui/toast";
import { ApprovalCard } from "./ApprovalCard";
import styles from "./Approvals.module.css";

/** Everything that waits for a person, of all sessions, in one place. */
export function Approvals({ onMenu }: { onMenu: () => void }) {
  const [approvals, setApprovals] = useState<readonly Approval[] | null>(null);
  const sessions = useStore(sessionList, (list) => list.sessions);
  const waiting = sessions.reduce((sum, session) => sum + (session.approvals ?? 0), 0);
  const who = useStore(me, (state) => state);

  const load = useCallback(() => {
    api.approvals().then(setApprovals, (error: unknown) => complain("Could not list the approvals", error));
  }, []);
  useEffect(load, [load, waiting]);
  useEffect(() => onNews("approval", load), [load]);

  const decided = (id: string): void =>
    setApprovals((before) => before?.filter((approval) => approval.id !== id) ?? null);
  return (
    <>
      <PageHead title="Approvals" onMenu={onMenu}>
        {approvals && approvals.length > 0 && <span>{plural(approvals.length, "request")} waiting</span>}
      </PageHead>
      <div className={styles.page}>
        <div className={styles.column}>
          {approvals?.length === 0 && (
            <div className={styles.none}>
              <h2>No pending approvals</h2>
              <p>
                When an agent in mode “ask” wants to run or change something, it asks here and in its session. The
                number beside “Approvals” and in the tab’s title says so.
              </p>
            </div>
          )}
          {approvals?.map((approval, index) => {
            const session = sessions.find((one) => one.id === approval.session);
            return (
              <article key={approval.id}>
                <Link to={sessionPath(approval.session)} className={styles.session}>
                  {session ? nameOf(session) : approval.session}
                </Link>
                <ApprovalCard
                  approval={approval}
                  active={index === 0}
                  decides={session ? rightsTo(who, session).approve : may(who, "approve")}
                  onDecided={() => decided(approval.id)}
                />
              </article>
            );
          })}
        </div>
      </div>
    </>
  );
}
