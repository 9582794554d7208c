import { me, ownerOf, relationTo, useMay } from "../api/rights";
import { fork } from "../session/branching";
import type { LiveSession } from "../session/liveSession";
import { useStore } from "../session/store";
import { Button } from "../ui/Button";
import { Icon } from "../ui/Icon";
import styles from "./ReadOnly.module.css";

/** Says in the place of the composer why there is none, and what can be done instead. */
export function ReadOnly({ session }: { session: LiveSession }) {
  const who = useStore(me, (state) => state);
  const meta = useStore(session.store, (state) => state.meta);
  const writes = useMay("write");
  const shared = meta && relationTo(who, meta) === "read" ? ownerOf(meta) : "";
  return (
    <div className={styles.notice} role="note" data-read-only>
      <Icon name="lock" />
      <p>
        {shared ? (
          <>
            <strong>{shared}</strong> shares this session with you: you may read it.
          </>
        ) : writes ? (
          "You can read this session, but not write to it."
        ) : (
          <>
            You may read, and not write: your{" "}
            {who?.role === "viewer" ? <>role is “viewer”</> : "login lacks that right"}.
          </>
        )}
      </p>
      {writes && (
        <Button title="Create your own session that begins with this conversation" onClick={() => void fork(session)}>
          <Icon name="fork" size={14} /> Fork it
        </Button>
      )}
    </div>
  );
}
