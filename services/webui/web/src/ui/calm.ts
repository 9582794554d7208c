/** Does `act` at once when it is asked, then at most every `everyMs`; a wish that comes earlier waits for its turn. */
export function calm(act: () => void, everyMs: number): { ask: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = -Infinity;
  const run = (): void => {
    timer = undefined;
    last = Date.now();
    act();
  };
  return {
    ask: () => {
      if (timer !== undefined) return;
      const wait = last + everyMs - Date.now();
      if (wait <= 0) run();
      else timer = setTimeout(run, wait);
    },
    stop: () => {
      clearTimeout(timer);
      timer = undefined;
    },
  };
}
