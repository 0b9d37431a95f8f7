/**
 * The URL's hash selects the page: #/ is the fleet with its filter as its query, #/workers/{id} the fleet with one
 * worker open, #/workers/{id}/details the page of that worker with the range of its charts as its query, #/sessions the
 * lablet sessions with their filter as its query, #/sessions/{id} one of them, #/sessions/new a new one,
 * #/sessions/classes/{id} the access sheet of a class, #/definitions the lablet definitions, #/definitions/{id} one of
 * them, #/calendar what is booked with the days as its query, #/scheduler the queue and the workers, #/labs the labs on
 * all workers, #/scaling, #/cost, #/audit, #/system, #/activity (with its filter as its query) and #/settings are
 * pages of their own; #/settings/api is the reference of the API with its search and the open operation as its query.
 */

import { computed, effect, signal } from "@preact/signals";

export type PageId =
  | "fleet"
  | "sessions"
  | "definitions"
  | "calendar"
  | "scheduler"
  | "labs"
  | "scaling"
  | "cost"
  | "audit"
  | "system"
  | "activity"
  | "settings";

export interface Page {
  readonly id: PageId;
  readonly label: string;
  readonly href: string;
  /** The shortcut. */
  readonly key: string;
}

export const PAGES: readonly Page[] = [
  { id: "fleet", label: "Fleet", href: "#/", key: "1" },
  { id: "sessions", label: "Sessions", href: "#/sessions", key: "2" },
  { id: "definitions", label: "Definitions", href: "#/definitions", key: "d" },
  { id: "calendar", label: "Calendar", href: "#/calendar", key: "3" },
  { id: "scheduler", label: "Scheduler", href: "#/scheduler", key: "4" },
  { id: "labs", label: "Labs", href: "#/labs", key: "5" },
  { id: "scaling", label: "Scaling", href: "#/scaling", key: "6" },
  { id: "cost", label: "Cost", href: "#/cost", key: "7" },
  { id: "audit", label: "Audit", href: "#/audit", key: "8" },
  { id: "system", label: "System", href: "#/system", key: "9" },
  { id: "activity", label: "Activity", href: "#/activity", key: "0" },
  { id: "settings", label: "Settings", href: "#/settings", key: "," },
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

/** The hash without its query. */
const path = computed(() => hash.value.split("?", 1)[0] ?? "");

/** What follows the question mark. */
export const query = computed(() => new URLSearchParams(hash.value.slice(path.value.length + 1)));

/** An unknown hash shows the fleet. */
export const page = computed<Page>(() => PAGES.find(({ href }) => isWithin(path.value, href)) ?? FLEET);

function isWithin(place: string, href: string): boolean {
  return place === href || (href !== FLEET.href && place.startsWith(`${href}/`));
}

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

/** The worker whose page is open. */
export const openWorkerPageId = computed(() => {
  const encoded = /^#\/workers\/([^/]+)\/details$/.exec(path.value)?.[1];
  return encoded === undefined ? null : decodeURIComponent(encoded);
});

export function workerPageHref(id: string): string {
  return `${workerHref(id)}/details`;
}

export function showWorker(id: string): void {
  window.location.hash = workerHref(id);
}

/** Shows another worker without adding a step to the browser's history. */
export function switchToWorker(id: string): void {
  window.location.replace(workerHref(id));
}

/** The list of the fleet, without a worker beside it. */
export const isFleetList = computed(() => path.value === FLEET.href || path.value === "");

/** How the user views the fleet, as the query of its URL; closing a worker leads back to it. */
export const fleetQuery = signal("");

export function showFleet(): void {
  window.location.hash = fleetQuery.value === "" ? FLEET.href : `${FLEET.href}?${fleetQuery.value}`;
}

const NEW_SESSION = "#/sessions/new";

export function newSessionHref(definitionId?: string): string {
  return definitionId === undefined ? NEW_SESSION : `${NEW_SESSION}?definition=${encodeURIComponent(definitionId)}`;
}

export const isNewSession = computed(() => path.value === NEW_SESSION);

/** The lablet session whose page is open. */
export const openSessionId = computed(() => {
  const encoded = /^#\/sessions\/([^/]+)$/.exec(path.value)?.[1];
  return encoded === undefined || isNewSession.value ? null : decodeURIComponent(encoded);
});

/** The definition whose page is open. */
export const openDefinitionId = computed(() => {
  const encoded = /^#\/definitions\/([^/]+)$/.exec(path.value)?.[1];
  return encoded === undefined ? null : decodeURIComponent(encoded);
});

export function definitionHref(id: string): string {
  return `#/definitions/${encodeURIComponent(id)}`;
}

/** The class whose access sheet is open. */
export const openClassId = computed(() => {
  const encoded = /^#\/sessions\/classes\/([^/]+)$/.exec(path.value)?.[1];
  return encoded === undefined ? null : decodeURIComponent(encoded);
});

export function classSheetHref(batchId: string): string {
  return `#/sessions/classes/${encodeURIComponent(batchId)}`;
}

export const isSessionList = computed(() => path.value === "#/sessions");

export function sessionHref(id: string): string {
  return `#/sessions/${encodeURIComponent(id)}`;
}

/** The list with this filter. */
export function sessionsHref(filter = ""): string {
  return filter === "" ? "#/sessions" : `#/sessions?${filter}`;
}

export const API_HREF = "#/settings/api";

export const isApiReference = computed(() => path.value === API_HREF);

/** The labs of one worker. */
export function labsHref(workerId: string): string {
  return `#/labs?worker=${encodeURIComponent(workerId)}`;
}

export function go(href: string): void {
  window.location.hash = href;
}

/** Change the query of the open page without adding a step to the browser's history. */
export function replaceQuery(text: string): void {
  const place = path.peek() === "" ? FLEET.href : path.peek();
  const href = text === "" ? place : `${place}?${text}`;
  if (href === hash.peek() || (text === "" && path.peek() === hash.peek())) return;
  window.history.replaceState(null, "", href);
  hash.value = href;
}
