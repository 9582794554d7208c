import type { Attachment } from "../api/client";
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

/** What goes back into the composer of a session, to be edited: words, and the files that came with them. */
interface Restored {
  name: string;
  text: string;
  attachments: readonly Attachment[];
}

export const restored = createStore<Restored | null>(null);

export function restoreDraft(name: string, text: string, attachments: readonly Attachment[] = []): void {
  restored.set(() => ({ name, text, attachments }));
}
