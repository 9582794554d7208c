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
