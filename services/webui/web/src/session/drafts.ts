import { createStore } from "./store";

const place = (name: string): string => `fairlead.draft.${name}`;

/** What was typed and not sent. */
export function draftOf(name: string): string {
  return localStorage.getItem(place(name)) ?? "";
}

export function keepDraft(name: string, text: string): void {
  try {
    if (text) localStorage.setItem(place(name), text);
    else localStorage.removeItem(place(name));
  } catch {
    // Full or forbidden: the draft lives as long as the page.
  }
}

/** A text that goes back into the composer of a session, to be edited. */
export const restored = createStore<{ name: string; text: string } | null>(null);

export function restoreText(name: string, text: string): void {
  restored.set(() => ({ name, text }));
}
