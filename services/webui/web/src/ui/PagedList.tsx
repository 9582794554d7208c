import type { ReactNode } from "react";
import type { Paged } from "../api/pages";
import { Button } from "./Button";
import styles from "./PagedList.module.css";
import { Problem } from "./Problem";
import { Spinner } from "./Spinner";

/** Rows of a list that comes in parts, and what is to be said while there are none. */
export function PagedList<T>({
  list,
  label,
  empty,
  children,
}: {
  list: Paged<T>;
  label: string;
  empty: ReactNode;
  children: (item: T) => ReactNode;
}) {
  const { items, problem, busy, more } = list;
  return (
    <>
      {problem && <Problem onAgain={list.ask}>{problem}</Problem>}
      {!items && !problem && <Spinner />}
      {items?.length === 0 && !more && <p className={styles.none}>{empty}</p>}
      {items && items.length > 0 && (
        <ul className={styles.list} aria-label={label} aria-busy={busy}>
          {items.map(children)}
        </ul>
      )}
      {more && (
        <Button disabled={busy} onClick={list.next}>
          Show earlier ones
        </Button>
      )}
    </>
  );
}
