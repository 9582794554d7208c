import { type KeyboardEvent, useEffect, useState } from "react";
import type { ServerPrompt } from "../api/types.generated";
import { complain } from "../ui/toast";
import { commandIn, type Offer, offersFor } from "./commands";
import { serverPrompts } from "./serverPrompts";

interface SlashMenuState {
  offers: readonly Offer[];
  at: number;
  /** Whether the key was for the menu. */
  press: (event: KeyboardEvent<HTMLTextAreaElement>) => boolean;
}

interface Wishes {
  takesCommands: boolean;
  takesPrompts: boolean;
  onPick: (offer: Offer) => void;
}

/** The menu of what `text` can become. Prompts are asked for when a text begins with a slash. */
export function useSlashMenu(text: string, { takesCommands, takesPrompts, onPick }: Wishes): SlashMenuState {
  const [prompts, setPrompts] = useState<readonly ServerPrompt[]>([]);
  const [place, setPlace] = useState({ text: "", at: 0, closed: false });
  const begun = text.startsWith("/");
  useEffect(() => {
    if (!begun || !takesPrompts) return undefined;
    let wanted = true;
    serverPrompts.all().then(
      (found) => wanted && setPrompts(found),
      (error: unknown) => wanted && complain("Could not list the prompts of MCP servers", error),
    );
    return () => {
      wanted = false;
    };
  }, [begun, takesPrompts]);

  const now = place.text === text ? place : { text, at: 0, closed: false };
  const offers = now.closed ? [] : offersFor(text, takesPrompts ? prompts : [], takesCommands);
  const press = (event: KeyboardEvent<HTMLTextAreaElement>): boolean => {
    const offer = offers[now.at];
    if (!offer) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setPlace({ ...now, at: (now.at + step + offers.length) % offers.length });
    else if (event.key === "Escape") setPlace({ ...now, closed: true });
    else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && !commandIn(text))) onPick(offer);
    else return false;
    event.preventDefault();
    event.stopPropagation(); // Esc is for the menu, and not for the run
    return true;
  };
  return { offers, at: now.at, press };
}
