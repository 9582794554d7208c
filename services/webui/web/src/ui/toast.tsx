import { createStore, useStore } from "../session/store";
import { IconButton } from "./Button";
import { Icon } from "./Icon";
import styles from "./toast.module.css";

interface Toast {
  id: number;
  text: string;
}

const toasts = createStore<readonly Toast[]>([]);
let last = 0;

/** Says for some seconds what went wrong; `error` may be anything that was thrown. */
export function complain(what: string, error: unknown): void {
  const why = error instanceof Error ? error.message : String(error);
  const id = (last += 1);
  toasts.set((shown) => [...shown.slice(-2), { id, text: `${what}: ${why}` }]);
  setTimeout(() => dismiss(id), 9000);
}

function dismiss(id: number): void {
  toasts.set((shown) => shown.filter((toast) => toast.id !== id));
}

export function Toasts() {
  const shown = useStore(toasts, (state) => state);
  return (
    <div className={styles.toasts} role="status">
      {shown.map((toast) => (
        <div key={toast.id} className={styles.toast}>
          <span>{toast.text}</span>
          <IconButton label="Dismiss" small onClick={() => dismiss(toast.id)}>
            <Icon name="cross" />
          </IconButton>
        </div>
      ))}
    </div>
  );
}
