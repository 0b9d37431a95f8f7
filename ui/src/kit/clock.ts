/** The server's time, ticking: a wrong local clock must not make ages negative. */

import { effect, signal } from "@preact/signals";

/** Server time minus local time, in milliseconds. */
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
