import { useEffect, useRef } from "react";
import { Escaped } from "../ui/Escaped";
import type { Offer } from "./commands";
import styles from "./SlashMenu.module.css";

interface Props {
  id: string;
  offers: readonly Offer[];
  at: number;
  onPick: (offer: Offer) => void;
}

/** What a text that begins with a slash can become, above the box that has the focus. */
export function SlashMenu({ id, offers, at, onPick }: Props) {
  const marked = useRef<HTMLLIElement>(null);
  useEffect(() => {
    // Without braces the effect would return what some browsers return here: a promise, which is no cleanup.
    marked.current?.scrollIntoView({ block: "nearest" });
  }, [at]);
  return (
    <ul className={styles.menu} id={id} role="listbox" aria-label="Commands and prompts">
      {offers.map((offer, index) => (
        <li
          key={offer.name}
          ref={index === at ? marked : null}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === at}
          onMouseDown={(event) => event.preventDefault()} // the box keeps the focus
          onClick={() => onPick(offer)}
        >
          <span>
            <Escaped text={offer.name} />
          </span>{" "}
          <small>
            <Escaped text={offer.means} />
          </small>
        </li>
      ))}
    </ul>
  );
}
