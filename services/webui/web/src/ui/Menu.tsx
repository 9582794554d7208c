import { type KeyboardEvent, type ReactNode, useId, useRef } from "react";
import { Icon } from "./Icon";
import styles from "./Menu.module.css";

export interface MenuItem {
  /** Tells items with one label apart. */
  id?: string;
  label: string;
  hint?: string;
  checked?: boolean;
  danger?: boolean;
  onPick: () => void;
}

/** A button that opens a list of choices, in the top layer, where nothing can cut it off. */
export function Menu({
  label,
  children,
  items,
  className,
  up = false,
}: {
  label: string;
  children: ReactNode;
  items: readonly MenuItem[];
  className?: string | undefined;
  up?: boolean;
}) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);

  const place = (open: boolean): void => {
    const anchor = button.current?.getBoundingClientRect();
    const box = list.current;
    if (!open || !anchor || !box) return;
    const { width, height } = box.getBoundingClientRect();
    const below = anchor.bottom + 4;
    const above = anchor.top - 4 - height;
    const top = up || below + height > innerHeight - 8 ? Math.max(8, above) : below;
    box.style.top = `${top}px`;
    box.style.left = `${Math.max(8, Math.min(anchor.left, innerWidth - width - 8))}px`;
    (box.querySelector<HTMLElement>("[aria-checked=true]") ?? box.querySelector("button"))?.focus();
  };

  const move = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const choices = [...(list.current?.querySelectorAll("button") ?? [])];
    const now = choices.findIndex((choice) => choice === document.activeElement);
    choices.at((now + step) % choices.length)?.focus();
  };

  return (
    <>
      <button
        ref={button}
        type="button"
        className={className}
        popoverTarget={id}
        aria-label={label}
        aria-haspopup="menu"
        title={label}
      >
        {children}
      </button>
      <div
        ref={list}
        id={id}
        popover="auto"
        role="menu"
        aria-label={label}
        className={styles.menu}
        onKeyDown={move}
        onToggle={(event) => place(event.newState === "open")}
      >
        {items.map((item) => (
          <button
            key={item.id ?? item.label}
            type="button"
            role={item.checked === undefined ? "menuitem" : "menuitemradio"}
            {...(item.checked === undefined ? {} : { "aria-checked": item.checked })}
            className={item.danger ? `${styles.item} ${styles.danger}` : styles.item}
            onClick={() => {
              list.current?.hidePopover();
              item.onPick();
            }}
          >
            <span className={styles.mark}>{item.checked && <Icon name="check" size={14} />}</span>
            <span>
              {item.label}
              {item.hint && <small>{item.hint}</small>}
            </span>
          </button>
        ))}
      </div>
    </>
  );
}
