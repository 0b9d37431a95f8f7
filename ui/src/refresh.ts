/** Asks again for what no event brings: soon after the fleet moved, and at a calm pace while it rests. */

import { effect } from "@preact/signals";
import { moves } from "./store";

export interface Pace {
  readonly everyMs: number;
  /** How soon after the fleet moved; a burst of moves is one. */
  readonly soonMs: number;
}

/** Asks now and then again until the returned function is called. Nobody looks at a hidden page: it waits. */
export function keepFresh(ask: () => void, { everyMs, soonMs }: Pace): () => void {
  const seen = moves.peek();
  let timer = 0;
  let dueAt = Number.POSITIVE_INFINITY;

  function askWithin(delayMs: number): void {
    const at = Date.now() + delayMs;
    if (at >= dueAt) return;
    window.clearTimeout(timer);
    dueAt = at;
    timer = window.setTimeout(askNow, delayMs);
  }

  function askNow(): void {
    dueAt = Number.POSITIVE_INFINITY;
    if (document.hidden) return;
    ask();
    askWithin(everyMs);
  }

  function onVisibility(): void {
    if (!document.hidden) askWithin(0);
  }

  askNow();
  const stopWatching = effect(() => {
    if (moves.value !== seen) askWithin(soonMs);
  });
  document.addEventListener("visibilitychange", onVisibility);
  return () => {
    stopWatching();
    document.removeEventListener("visibilitychange", onVisibility);
    window.clearTimeout(timer);
  };
}
