import { count } from "./format";
import styles from "./Meter.module.css";

/** How much of a limit is used, as a ring and in words. */
export function Meter({ value, max, title }: { value: number; max: number; title: string }) {
  const part = max > 0 ? Math.min(1, value / max) : 0;
  const around = 2 * Math.PI * 6;
  return (
    <span className={part > 0.85 ? `${styles.meter} ${styles.high}` : styles.meter} title={title}>
      <svg
        width="16"
        height="16"
        viewBox="0 0 16 16"
        role="meter"
        aria-valuenow={Math.round(part * 100)}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-label={title}
      >
        <circle cx="8" cy="8" r="6" className={styles.track} />
        <circle
          cx="8"
          cy="8"
          r="6"
          className={styles.used}
          strokeDasharray={`${part * around} ${around}`}
          transform="rotate(-90 8 8)"
        />
      </svg>
      {count(value)} <span className={styles.max}>/ {count(max)}</span>
    </span>
  );
}
