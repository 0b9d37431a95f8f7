import { type ReadonlySignal, signal } from "@preact/signals";

/** A media query as a signal. */
export function mediaQuery(query: string): ReadonlySignal<boolean> {
  const list = window.matchMedia(query);
  const matches = signal(list.matches);
  list.addEventListener("change", (event) => {
    matches.value = event.matches;
  });
  return matches;
}
