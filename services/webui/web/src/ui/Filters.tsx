import { type ReactNode, useEffect, useState } from "react";
import styles from "./Filters.module.css";

/** What narrows a list, in one line. */
export function Filters({ children }: { children: ReactNode }) {
  return (
    <div className={styles.bar} role="search">
      {children}
    </div>
  );
}

export function FilterChoice({
  label,
  value,
  choices,
  onChoose,
}: {
  label: string;
  value: string;
  choices: readonly { value: string; label: string }[];
  onChoose: (value: string) => void;
}) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChoose(event.target.value)}>
      {choices.map((one) => (
        <option key={one.value} value={one.value}>
          {one.label}
        </option>
      ))}
    </select>
  );
}

const PAUSE_MS = 350;

/** A text that counts a moment after the last key. */
export function FilterText({ label, onSet }: { label: string; onSet: (value: string) => void }) {
  const [text, setText] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => onSet(text.trim()), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, onSet]);
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={label}
      maxLength={200}
      spellCheck={false}
      autoCapitalize="none"
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}
