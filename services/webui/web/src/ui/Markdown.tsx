import { memo, useLayoutEffect, useMemo, useRef } from "react";
import { Code } from "./Code";
import { NOTHING_PARSED, parse, toHtml } from "./markdown";
import styles from "./Markdown.module.css";

/** Markdown as a page shows it. While a text grows only its last block is read and drawn again. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const before = useRef(NOTHING_PARSED);
  const parsed = useMemo(() => parse(text, before.current), [text]);
  useLayoutEffect(() => {
    before.current = parsed;
  }, [parsed]);

  return (
    <div className={styles.markdown}>
      {parsed.blocks.map((block, index) =>
        block.kind === "code" ? (
          <Code key={index} text={block.text} lang={block.lang} closed={block.closed} />
        ) : (
          <Html key={index} raw={block.raw} />
        ),
      )}
    </div>
  );
});

const Html = memo(function Html({ raw }: { raw: string }) {
  const html = useMemo(() => toHtml(raw), [raw]);
  return <div className={styles.block} dangerouslySetInnerHTML={{ __html: html }} />;
});
