import { useEffect, useState } from "react";
import { Icon } from "./Icon";
import { IconButton } from "./Button";

/** Puts `text` on the clipboard, and says so for a moment. */
export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [copied, setCopied] = useState(false);

  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);

  const copy = (): void => {
    void navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(
      () => setCopied(true),
      () => undefined, // no permission, or not a secure origin: the text can still be selected
    );
  };

  return (
    <IconButton label={copied ? "Copied" : label} onClick={copy} small>
      <Icon name={copied ? "check" : "copy"} />
    </IconButton>
  );
}
