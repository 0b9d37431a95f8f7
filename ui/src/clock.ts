/** The time, ticking, as the server sees it: a wrong clock here must not turn ages negative. */

import { effect, signal } from "@preact/signals";

/** Server time minus ours, in milliseconds. */
export const clockSkew = signal(0);

export const now = signal(Date.now());

const TICK_MS = 1_000;

export function startClock(): void {
  const tick = () => {
    now.value = Date.now() + clockSkew.peek();
  };
  window.setInterval(tick, TICK_MS);
  effect(() => {
    now.value = Date.now() + clockSkew.value;
  });
}
