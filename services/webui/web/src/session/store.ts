import { useSyncExternalStore } from "react";

/** A value, and those who want to know when it changes. */
export interface Store<S> {
  get: () => S;
  set: (update: (state: S) => S) => void;
  subscribe: (listener: () => void) => () => void;
}

/** A store; with `schedule` the listeners are told together, later (once a frame), not at each change. */
export function createStore<S>(initial: S, schedule?: (tell: () => void) => void): Store<S> {
  let state = initial;
  let planned = false;
  const listeners = new Set<() => void>();
  const tell = (): void => {
    planned = false;
    for (const listener of [...listeners]) listener();
  };
  return {
    get: () => state,
    set(update) {
      const next = update(state);
      if (Object.is(next, state)) return;
      state = next;
      if (!schedule) tell();
      else if (!planned) {
        planned = true;
        schedule(tell);
      }
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Runs `tell` with the next frame; in a hidden tab, where frames do not come, shortly. */
export function nextFrame(tell: () => void): void {
  let done = false;
  const once = (): void => {
    if (done) return;
    done = true;
    tell();
  };
  requestAnimationFrame(once);
  setTimeout(once, 120);
}

/** The selected part of a store. `select` must return the same object while nothing changed. */
export function useStore<S, T>(store: Store<S>, select: (state: S) => T): T {
  return useSyncExternalStore(store.subscribe, () => select(store.get()));
}

/** As `useStore`, but only while `on`; `otherwise` is the value meanwhile, and changes are not listened to. */
export function useStoreWhile<S, T>(on: boolean, store: Store<S>, select: (state: S) => T, otherwise: T): T {
  return useSyncExternalStore(on ? store.subscribe : never, () => (on ? select(store.get()) : otherwise));
}

const never = (): (() => void) => () => undefined;
