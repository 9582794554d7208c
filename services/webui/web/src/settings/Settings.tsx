import { useIsAdmin } from "../api/rights";
import { PageHead } from "../chat/PageHead";
import { Credentials } from "./Credentials";
import styles from "./Settings.module.css";

/** What holds for all sessions. */
export function Settings({ onMenu }: { onMenu: () => void }) {
  const admin = useIsAdmin();
  return (
    <>
      <PageHead title="Settings" onMenu={onMenu} />
      <div className={styles.page}>
        <div className={styles.column}>
          {admin ? (
            <Credentials mayChange />
          ) : (
            <p className={styles.none}>Settings that hold for all sessions are for administrators.</p>
          )}
        </div>
      </div>
    </>
  );
}
