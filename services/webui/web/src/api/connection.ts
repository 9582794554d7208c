import { createStore } from "../session/store";

/** Whether the gateway can be reached: `downSince` is set by the first request that gets no answer. */
export const connection = createStore<{ downSince: number | null }>({ downSince: null });

export function reached(): void {
  connection.set((state) => (state.downSince === null ? state : { downSince: null }));
}

export function notReached(): void {
  connection.set((state) => (state.downSince === null ? { downSince: Date.now() } : state));
}
