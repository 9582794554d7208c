import { connection } from "../api/connection";
import { useStore } from "../session/store";
import styles from "./OfflineBanner.module.css";
import { useNow } from "./useNow";

const PATIENCE_MS = 2500; // shorter gaps mend themselves

/** Says that the gateway is out of reach, when it really is. */
export function OfflineBanner() {
  const downSince = useStore(connection, (state) => state.downSince);
  const now = useNow(downSince !== null, 500);
  if (downSince === null || now - downSince < PATIENCE_MS) return null;
  return (
    <div className={styles.banner} role="status">
      Offline: Fairlead cannot be reached. Nothing is lost; the page reconnects by itself.
    </div>
  );
}
