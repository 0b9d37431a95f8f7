/** Short messages: what failed, and what was done and can be undone. */

import { signal } from "@preact/signals";
import { ApiError } from "./api";

export interface Toast {
  readonly id: number;
  readonly title: string;
  readonly detail: string;
  /** Takes back what was done; null: this is an error. */
  readonly undo: (() => void) | null;
}

export const toasts = signal<readonly Toast[]>([]);

const SHOWN_MS = 10_000;
const MAX_SHOWN = 4;
let lastId = 0;

export function showError(title: string, error: unknown): void {
  // The sign-in view follows and needs no message.
  if (error instanceof ApiError && error.status === 401) return;
  show(title, error instanceof Error ? error.message : String(error), null);
}

/** Say what was done, and offer to undo it; only the last action can be undone. */
export function showUndo(title: string, detail: string, undo: () => void): void {
  toasts.value = toasts.value.filter((toast) => toast.undo === null);
  show(title, detail, undo);
}

function show(title: string, detail: string, undo: (() => void) | null): void {
  lastId += 1;
  const id = lastId;
  toasts.value = [...toasts.value, { id, title, detail, undo }].slice(-MAX_SHOWN);
  window.setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

/** Undo what was done last, while it is offered; returns whether it was. */
export function undoLast(): boolean {
  const offered = toasts.peek().find((toast) => toast.undo !== null);
  if (offered === undefined) return false;
  dismiss(offered.id);
  offered.undo?.();
  return true;
}
