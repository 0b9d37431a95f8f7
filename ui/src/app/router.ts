/**
 * The URL's hash selects the page: #/ is the fleet, #/workers/{id} the fleet with one worker open,
 * #/scaling and #/cost are pages of their own.
 */

import { computed, effect, signal } from "@preact/signals";

export type PageId = "fleet" | "scaling" | "cost";

export interface Page {
  readonly id: PageId;
  readonly label: string;
  readonly href: string;
  /** The shortcut. */
  readonly key: string;
}

export const PAGES: readonly Page[] = [
  { id: "fleet", label: "Fleet", href: "#/", key: "1" },
  { id: "scaling", label: "Scaling", href: "#/scaling", key: "2" },
  { id: "cost", label: "Cost", href: "#/cost", key: "3" },
];

const hash = signal(window.location.hash);

export function startRouter(): void {
  window.addEventListener("hashchange", () => {
    hash.value = window.location.hash;
  });
  effect(() => {
    document.title = `${page.value.label} · Lablet Cloud Manager`;
  });
}

const FLEET = PAGES[0] as Page;

/** An unknown hash shows the fleet. */
export const page = computed<Page>(() => PAGES.find(({ href }) => href === hash.value) ?? FLEET);

export function showPage(key: string): boolean {
  const target = PAGES.find((candidate) => candidate.key === key);
  if (target !== undefined) window.location.hash = target.href;
  return target !== undefined;
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
