import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import styles from "./Button.module.css";

type Native = Omit<ButtonHTMLAttributes<HTMLButtonElement>, "className"> & { ref?: Ref<HTMLButtonElement> };

/** A button with words. */
export function Button({
  tone = "plain",
  kbd,
  children,
  ...rest
}: Native & { tone?: "plain" | "primary" | "danger" | "quiet"; kbd?: string }) {
  return (
    <button type="button" {...rest} className={`${styles.button} ${styles[tone]}`}>
      {children}
      {kbd && <kbd aria-hidden>{kbd}</kbd>}
    </button>
  );
}

/** A button with a picture; `label` is its name and its tooltip. */
export function IconButton({
  label,
  small = false,
  children,
  ...rest
}: Native & { label: string; small?: boolean; children: ReactNode }) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      {...rest}
      className={small ? `${styles.icon} ${styles.small}` : styles.icon}
    >
      {children}
    </button>
  );
}
