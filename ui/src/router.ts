/** The page's place is its URL's hash: #/ is the fleet, #/workers/{id} the fleet with one worker open. */

import { computed, signal } from "@preact/signals";

const hash = signal(window.location.hash);

export function startRouter(): void {
  window.addEventListener("hashchange", () => {
    hash.value = window.location.hash;
  });
}

export const openWorkerId = computed(() => workerIdOf(hash.value));

function workerIdOf(place: string): string | null {
  const encoded = /^#\/workers\/([^/]+)$/.exec(place)?.[1];
  return encoded === undefined ? null : decodeURIComponent(encoded);
}

export function workerHref(id: string): string {
  return `#/workers/${encodeURIComponent(id)}`;
}

export function showWorker(id: string): void {
  window.location.hash = workerHref(id);
}

/** Shows another worker without adding a step to the browser's history. */
export function switchToWorker(id: string): void {
  window.location.replace(workerHref(id));
}

export function showFleet(): void {
  window.location.hash = "#/";
}
