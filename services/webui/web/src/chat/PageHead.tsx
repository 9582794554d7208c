import type { ReactNode } from "react";
import { IconButton } from "../ui/Button";
import { Icon } from "../ui/Icon";
import styles from "./PageHead.module.css";

/** The line on top of a page; on a phone it opens the list of sessions. */
export function PageHead({ title, onMenu, children }: { title: ReactNode; onMenu: () => void; children?: ReactNode }) {
  return (
    <header className={styles.head}>
      <span className={styles.menu}>
        <IconButton label="Sessions" onClick={onMenu}>
          <Icon name="menu" />
        </IconButton>
      </span>
      <h1 className={styles.title}>{title}</h1>
      {children && <div className={styles.facts}>{children}</div>}
    </header>
  );
}
