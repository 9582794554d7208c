import { memo, useEffect, useState } from "react";
import { CopyButton } from "./CopyButton";
import { inOrder } from "./markdown";
import styles from "./Code.module.css";

/** A block of code. It is coloured once it is complete; until then its text only grows. */
export const Code = memo(function Code({ text, lang, closed }: { text: string; lang: string; closed: boolean }) {
  const [coloured, setColoured] = useState<{ text: string; html: TrustedHTML } | null>(null);

  useEffect(() => {
    if (!closed || !lang) return;
    let gone = false;
    void import("./highlight").then(({ highlight }) => {
      const html = highlight(inOrder(text), lang.toLowerCase());
      if (!gone && html) setColoured({ text, html });
    });
    return () => {
      gone = true;
    };
  }, [text, lang, closed]);

  return (
    <figure className={styles.code}>
      <figcaption>
        <span>{lang || "text"}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre tabIndex={0}>
        {coloured?.text === text ? (
          <code dangerouslySetInnerHTML={{ __html: coloured.html }} />
        ) : (
          <code>{inOrder(text)}</code>
        )}
      </pre>
    </figure>
  );
});
