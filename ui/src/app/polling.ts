/** Polls what no event carries: soon after the fleet has changed, and at a fixed interval otherwise. */

import { effect, type ReadonlySignal } from "@preact/signals";
import { fleetChanges } from "./store";

export interface PollInterval {
  readonly everyMs: number;
  /** The delay after a change of the fleet; a burst of changes counts as one. */
  readonly afterChangeMs: number;
}

/** Fetch at once, then repeatedly, until the returned function is called. A hidden page does not fetch. */
export function startPolling(
  fetchData: () => void,
  { everyMs, afterChangeMs }: PollInterval,
  changes: ReadonlySignal<number> = fleetChanges,
): () => void {
  const seen = changes.peek();
  let timer = 0;
  let dueAt = Number.POSITIVE_INFINITY;

  function fetchWithin(delayMs: number): void {
    const at = Date.now() + delayMs;
    if (at >= dueAt) return;
    window.clearTimeout(timer);
    dueAt = at;
    timer = window.setTimeout(fetchNow, delayMs);
  }

  function fetchNow(): void {
    dueAt = Number.POSITIVE_INFINITY;
    if (document.hidden) return;
    fetchData();
    fetchWithin(everyMs);
  }

  function onVisibility(): void {
    if (!document.hidden) fetchWithin(0);
  }

  fetchNow();
  const stopObserving = effect(() => {
    if (changes.value !== seen) fetchWithin(afterChangeMs);
  });
  document.addEventListener("visibilitychange", onVisibility);
  return () => {
    stopObserving();
    document.removeEventListener("visibilitychange", onVisibility);
    window.clearTimeout(timer);
  };
}
