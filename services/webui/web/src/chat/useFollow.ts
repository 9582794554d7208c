import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

const NEAR_PX = 48;
const EARLY_PX = 800;

/** Where one reads: at the end, or at a message, `offset` pixels below the upper edge. */
interface Place {
  atEnd: boolean;
  anchor: string | null;
  offset: number;
}

const AT_END = { anchor: null, offset: 0 }; // where it is known without looking
const places = new Map<string, Place>();

interface Follow {
  scroller: RefObject<HTMLDivElement | null>;
  content: RefObject<HTMLDivElement | null>;
  atEnd: boolean;
  toEnd: () => void;
}

/**
 * Keeps a scrolled view at its end if it was there, where one left it when one comes back, and where it
 * is when older things are put on top (`first` is the id of the topmost one).
 */
export function useFollow(name: string, ready: boolean, first: string, onNearTop: () => void): Follow {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const height = useRef({ first, fromEnd: 0 });
  const nearTop = useRef(onNearTop);
  const [atEnd, setAtEnd] = useState(true);

  useEffect(() => {
    nearTop.current = onNearTop;
  });

  const toEnd = useCallback(() => {
    const box = scroller.current;
    if (!box) return;
    following.current = true;
    setAtEnd(true);
    box.scrollTop = box.scrollHeight;
  }, []);

  // Where one was, once there is something to scroll.
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box || !ready) return;
    const place = places.get(name);
    const anchor = place && !place.atEnd && place.anchor ? document.getElementById(place.anchor) : null;
    if (place && anchor) {
      following.current = false;
      // Heights of what was not drawn yet are estimates: some frames later they are exact.
      const goBack = (frames: number): void => {
        box.scrollTop += Math.trunc(
          anchor.getBoundingClientRect().top - box.getBoundingClientRect().top - place.offset,
        );
        if (frames > 0) requestAnimationFrame(() => goBack(frames - 1));
      };
      goBack(4);
    } else box.scrollTop = box.scrollHeight;
  }, [name, ready]);

  // Older things on top must not move what one reads.
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box || height.current.first === first) return;
    if (height.current.first !== "" && !following.current) box.scrollTop = box.scrollHeight - height.current.fromEnd;
    height.current.first = first;
  }, [first]);

  useEffect(() => {
    const box = scroller.current;
    const inner = content.current;
    if (!box || !inner) return;
    const scrolled = (): void => {
      const fromEnd = box.scrollHeight - box.scrollTop;
      const end = fromEnd - box.clientHeight < NEAR_PX;
      following.current = end;
      height.current.fromEnd = fromEnd;
      places.set(name, { atEnd: end, ...(end ? AT_END : messageAt(box)) });
      setAtEnd(end);
      if (box.scrollTop < EARLY_PX && box.scrollHeight > box.clientHeight) nearTop.current();
    };
    const grown = new ResizeObserver(() => {
      if (following.current) box.scrollTop = box.scrollHeight;
      else height.current.fromEnd = box.scrollHeight - box.scrollTop;
    });
    grown.observe(inner);
    grown.observe(box);
    box.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      grown.disconnect();
      box.removeEventListener("scroll", scrolled);
    };
  }, [name]);

  return { scroller, content, atEnd, toEnd };
}

/** The message at the upper edge of the view. */
function messageAt(box: HTMLElement): { anchor: string | null; offset: number } {
  const { left, top, width } = box.getBoundingClientRect();
  const message = document.elementFromPoint(left + width / 2, top + 24)?.closest("article[id]");
  return message
    ? { anchor: message.id, offset: message.getBoundingClientRect().top - top }
    : { anchor: null, offset: 0 };
}
