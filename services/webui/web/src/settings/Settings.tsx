import type { Me } from "../api/types";
import { PageHead } from "../chat/PageHead";
import { Credentials } from "./Credentials";
import styles from "./Settings.module.css";

/** What holds for all sessions. */
export function Settings({ me, onMenu }: { me: Me; onMenu: () => void }) {
  return (
    <>
      <PageHead title="Settings" onMenu={onMenu} />
      <div className={styles.page}>
        <div className={styles.column}>
          <Credentials mayChange={me.scopes.includes("admin")} />
        </div>
      </div>
    </>
  );
}
