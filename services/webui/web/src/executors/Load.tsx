import styles from "./Executors.module.css";

/** How many calls run of how many fit, as a bar and in words. */
export function Load({ running, capacity, label }: { running: number; capacity: number; label: string }) {
  const part = capacity > 0 ? Math.min(1, running / capacity) : 1;
  return (
    <span className={styles.load}>
      <span
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={capacity}
        aria-valuenow={running}
        title={`${running} of ${capacity} calls run`}
        className={part >= 1 ? `${styles.bar} ${styles.full}` : styles.bar}
      >
        <span style={{ width: `${part * 100}%` }} />
      </span>
      <span className={styles.share}>
        {running} / {capacity}
      </span>
    </span>
  );
}
