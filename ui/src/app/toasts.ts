/** Short error messages. */

import { signal } from "@preact/signals";
import { ApiError } from "./api";

export interface Toast {
  readonly id: number;
  readonly title: string;
  readonly detail: string;
}

export const toasts = signal<readonly Toast[]>([]);

const SHOWN_MS = 10_000;
const MAX_SHOWN = 4;
let lastId = 0;

export function showError(title: string, error: unknown): void {
  // The sign-in view follows and needs no message.
  if (error instanceof ApiError && error.status === 401) return;
  const detail = error instanceof Error ? error.message : String(error);
  lastId += 1;
  const id = lastId;
  toasts.value = [...toasts.value, { id, title, detail }].slice(-MAX_SHOWN);
  window.setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}
