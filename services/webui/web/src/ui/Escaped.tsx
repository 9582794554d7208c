import { Fragment } from "react";
import styles from "./Escaped.module.css";
import { reveal } from "./reveal";

/** Text as it is, byte for byte: characters that hide or reorder others are shown by their number. */
export function Escaped({ text }: { text: string }) {
  return (
    <bdi dir="ltr">
      {reveal(text).map((piece, index) =>
        "hidden" in piece ? (
          <mark key={index} className={styles.hidden} title="An invisible or control character">
            {piece.hidden}
          </mark>
        ) : (
          <Fragment key={index}>{piece.text}</Fragment>
        ),
      )}
    </bdi>
  );
}

/** As `Escaped`; what stands between two backticks is shown as inline code. */
export function EscapedProse({ text }: { text: string }) {
  return (
    <>
      {text.split(/`([^`]+)`/).map((part, index) =>
        index % 2 === 1 ? (
          <code key={index}>
            <Escaped text={part} />
          </code>
        ) : (
          <Escaped key={index} text={part} />
        ),
      )}
    </>
  );
}
