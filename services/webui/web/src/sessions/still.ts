import { type PointerEvent, useEffect, useRef, useState } from "react";
import type { Session } from "../api/types";

const STILL_MS = 1500; // after the last move of the mouse: who still aims moves it

/**
 * What happened meanwhile, in the places of before: a row that a mouse aims at must not walk away under it.
 * A session that is new is not among them; it comes with the next order.
 */
export function inPlace(before: readonly Session[], now: readonly Session[]): Session[] {
  const fresh = new Map(now.map((session) => [session.id, session]));
  return before.flatMap((old) => {
    const session = fresh.get(old.id);
    return session ? [{ ...session, updated_at: old.updated_at }] : []; // by which it is put among the days
  });
}

/**
 * The sessions in an order that stays while a mouse moves over them, and what the list has to tell of that mouse.
 *
 * @param query another one is another list.
 */
export function useStill(sessions: readonly Session[], query: string) {
  const [held, setHeld] = useState<{ sessions: readonly Session[]; query: string } | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const end = (): void => {
    clearTimeout(timer.current);
    setHeld(null);
  };
  const move = (event: PointerEvent): void => {
    if (event.pointerType !== "mouse") return; // a finger scrolls
    clearTimeout(timer.current);
    timer.current = setTimeout(end, STILL_MS);
    setHeld((before) => (before?.query === query ? before : { sessions, query }));
  };
  const still = held?.query === query ? inPlace(held.sessions, sessions) : sessions;
  return { still, aim: { onPointerMove: move, onPointerLeave: end } };
}
