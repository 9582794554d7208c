import type { ReactNode } from "react";
import { Button } from "./Button";
import styles from "./Problem.module.css";

/** Says why a page has nothing to show, and asks again on demand. */
export function Problem({ children, onAgain }: { children: ReactNode; onAgain: () => void }) {
  return (
    <div className={styles.problem} role="alert">
      <p>{children}</p>
      <Button onClick={onAgain}>Ask again</Button>
    </div>
  );
}
