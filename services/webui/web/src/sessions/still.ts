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

/** The list under a mouse. */
interface Held {
  sessions: readonly Session[];
  kind: string;
}

/** What is listed: in the order that is held, unless that is of another list, or of one that was not there yet. */
export function shown(held: Held | null, now: readonly Session[], kind: string): readonly Session[] {
  return held?.kind === kind && held.sessions.length > 0 ? inPlace(held.sessions, now) : now;
}

/**
 * The sessions in an order that stays while a mouse moves over them, and what the list has to tell of that mouse.
 *
 * @param kind another one is another list, whose rows nobody aims at yet.
 */
export function useStill(sessions: readonly Session[], kind: string) {
  const [held, setHeld] = useState<Held | null>(null);
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
    setHeld((before) => (before?.kind === kind && before.sessions.length > 0 ? before : { sessions, kind }));
  };
  return { still: shown(held, sessions, kind), aim: { onPointerMove: move, onPointerLeave: end } };
}
