/** Shortcuts of the page; dialogs and form fields handle their own keys. */

import * as workers from "../features/fleet/selection";
import { rows } from "../features/fleet/view";
import { sessionLinkId } from "../features/lablets/session-row";
import { clearSelection, selection, rows as sessionRows, toggleSelected } from "../features/lablets/store";
import { openCreateDialog, openDialog } from "./commands";
import {
  go,
  isSessionList,
  newSessionHref,
  openWorkerId,
  openWorkerPageId,
  page,
  showFleet,
  showPage,
  switchToWorker,
} from "./router";
import { denialFor, session } from "./session";
import { undoLast } from "./toasts";

export const FILTER_ID = "fleet-filter";
export const SESSION_FILTER_ID = "session-filter";

const ROW_LINK_PREFIX = "worker-";

export function rowLinkId(workerId: string): string {
  return ROW_LINK_PREFIX + workerId;
}

export function isNavigatingRows(): boolean {
  return document.activeElement?.matches(`[id^="${ROW_LINK_PREFIX}"]:focus-visible`) ?? false;
}

export function startKeyboard(): void {
  window.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]") !== null) return;
    if (isPaletteKey(event)) {
      event.preventDefault();
      open("palette");
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (handle(event.key)) event.preventDefault();
  });
}

/** Ctrl-K, or Cmd-K, from everywhere: in a field, too. */
function isPaletteKey({ key, ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  return key.toLowerCase() === "k" && ctrlKey !== metaKey && !altKey;
}

function open(kind: "palette" | "shortcuts"): void {
  if (session.value.kind === "signed-in") openDialog.value = { kind };
}

function handle(key: string): boolean {
  switch (key) {
    case "/":
      return focusOn(page.value.id === "sessions" ? SESSION_FILTER_ID : FILTER_ID);
    case "?":
      open("shortcuts");
      return true;
    case "c":
      create();
      return true;
    case "x":
      return selectFocused();
    case "u":
      return undoLast();
    case "j":
    case "ArrowDown":
      return move(1);
    case "k":
    case "ArrowUp":
      return move(-1);
    case "Escape":
      return closeWorker() || dropSelection();
    default:
      return showPage(key);
  }
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.matches("input:not([type=checkbox]), select, textarea");
}

function create(): void {
  if (page.value.id !== "sessions") openCreateDialog();
  else if (denialFor("book") === null) go(newSessionHref());
}

function focusedSession(): number {
  return sessionRows.value.findIndex(({ id }) => sessionLinkId(id) === document.activeElement?.id);
}

function focusedWorker(): number {
  return rows.value.findIndex((entry) => rowLinkId(entry.id) === document.activeElement?.id);
}

function selectFocused(): boolean {
  const worker = page.value.id === "fleet" ? rows.value[focusedWorker()] : undefined;
  if (worker !== undefined) workers.toggleSelected(worker.id);
  if (worker !== undefined) return true;
  const focused = isSessionList.value ? sessionRows.value[focusedSession()] : undefined;
  if (focused !== undefined) toggleSelected(focused.id);
  return focused !== undefined;
}

function dropSelection(): boolean {
  if (page.value.id === "fleet" && workers.selection.value.size > 0) {
    workers.clearSelection();
    return true;
  }
  const isSelecting = isSessionList.value && selection.value.size > 0;
  if (isSelecting) clearSelection();
  return isSelecting;
}

function moveInSessions(step: 1 | -1): boolean {
  const list = sessionRows.value;
  const focused = focusedSession();
  const start = step === 1 ? 0 : list.length - 1;
  const target = list[focused < 0 ? start : focused + step];
  if (target !== undefined) focusOn(sessionLinkId(target.id));
  return list.length > 0;
}

function move(step: 1 | -1): boolean {
  if (isSessionList.value) return moveInSessions(step);
  const list = rows.value;
  if (list.length === 0 || page.value.id !== "fleet" || openWorkerPageId.value !== null) return false;
  const focused = focusedWorker();
  const current = focused >= 0 ? focused : list.findIndex((entry) => entry.id === openWorkerId.value);
  const start = step === 1 ? 0 : list.length - 1;
  const target = list[current < 0 ? start : current + step];
  if (target === undefined) return true;
  focusOn(rowLinkId(target.id));
  if (openWorkerId.value !== null) switchToWorker(target.id);
  return true;
}

function closeWorker(): boolean {
  if (openWorkerId.value === null) return false;
  showFleet();
  return true;
}

export function focusOn(id: string): boolean {
  const element = document.getElementById(id);
  element?.focus();
  element?.scrollIntoView({ block: "nearest" });
  return element !== null;
}
