import { useLayoutEffect, useMemo, useRef } from "react";
import { readable } from "../session/tail";
import styles from "./Output.module.css";

/** What a tool printed. With `fromEnd` the box opens at its end and keeps to it, unless one has scrolled up in it. */
export function Output({ text, fromEnd, cut }: { text: string; fromEnd: boolean; cut: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const following = useRef(true);
  const shown = useMemo(() => readable(text), [text]);

  useLayoutEffect(() => {
    const pre = box.current;
    if (pre && fromEnd && following.current) pre.scrollTop = pre.scrollHeight;
  }, [shown, fromEnd]);

  return (
    <pre
      ref={box}
      className={styles.output}
      tabIndex={0}
      onScroll={(event) => {
        const pre = event.currentTarget;
        following.current = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 24;
      }}
    >
      {cut && <span className={styles.cut}>… what was printed before is in the full output{"\n"}</span>}
      {shown}
    </pre>
  );
}
