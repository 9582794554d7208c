import { createStore } from "../session/store";

export type Theme = "auto" | "light" | "dark";
const ORDER: readonly Theme[] = ["auto", "light", "dark"];

function stored(): Theme {
  const value = localStorage.getItem("fairlead.theme");
  return value === "light" || value === "dark" ? value : "auto";
}

export const theme = createStore<Theme>(stored());

/** Puts the chosen theme on the page; `auto` leaves it to the system. */
export function applyTheme(): void {
  const chosen = theme.get();
  if (chosen === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}

export function nextTheme(): void {
  theme.set((now) => ORDER[(ORDER.indexOf(now) + 1) % ORDER.length] ?? "auto");
  localStorage.setItem("fairlead.theme", theme.get());
  applyTheme();
}
