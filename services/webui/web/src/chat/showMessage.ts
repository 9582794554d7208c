/** Brings a message into view and the focus to it, for the keyboard and for screen readers; whether it is there. */
export function showMessage(id: string): boolean {
  const message = document.getElementById(`m-${id}`);
  if (!message) return false;
  message.tabIndex = -1;
  message.focus({ preventScroll: true });
  message.scrollIntoView({ block: "start" });
  message.toggleAttribute("data-shown", true);
  message.addEventListener("blur", () => message.removeAttribute("data-shown"), { once: true });
  return true;
}
