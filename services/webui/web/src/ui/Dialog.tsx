import { type ReactNode, useEffect, useRef } from "react";
import styles from "./Dialog.module.css";

/** A dialog over the page. Esc and a click beside it close it. */
export function Dialog({
  title,
  onClose,
  children,
  placement = "middle",
  plain = false,
}: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  placement?: "middle" | "top";
  plain?: boolean;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);

  return (
    <dialog
      ref={ref}
      className={placement === "top" ? `${styles.dialog} ${styles.top}` : styles.dialog}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === ref.current && ref.current.close()}
    >
      <div className={plain ? undefined : styles.body}>
        {!plain && <h2>{title}</h2>}
        {children}
      </div>
    </dialog>
  );
}
