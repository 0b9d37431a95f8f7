/** What a person can do to a worker. The page shows the wish at once and the answer when it comes. */

import { signal } from "@preact/signals";
import * as api from "./api";
import type { Action, NewWorker, WorkerView } from "./generated/api";
import { ACTION_LABEL } from "./model";
import { denialFor } from "./session";
import { applyWorkers, type WorkerEntry } from "./store";
import { showError } from "./toasts";

export type OpenDialog =
  | { readonly kind: "create" | "fleet-license" }
  | {
      readonly kind: "delete" | "hold" | "register" | "deregister" | "cml-login" | "tags";
      readonly entry: WorkerEntry;
    };

export const openDialog = signal<OpenDialog | null>(null);

export function askToCreate(): void {
  if (denialFor("create") === null) openDialog.value = { kind: "create" };
}

export function closeDialog(): void {
  openDialog.value = null;
}

/** Runs the action, after a confirmation if there is no way back from it. */
export function ask(entry: WorkerEntry, action: Action): void {
  if (action === "delete") openDialog.value = { kind: "delete", entry };
  else void run(entry, action);
}

export async function run(entry: WorkerEntry, action: Action): Promise<void> {
  entry.pending.value = action;
  try {
    applyWorkers([await api.act(entry.id, action)]);
  } catch (error) {
    showError(`${ACTION_LABEL[action]} ${entry.worker.value.name} was refused`, error);
  } finally {
    entry.pending.value = null;
  }
}

/** Asks for a change of a worker that is no action; says whether it was accepted. */
export async function change(entry: WorkerEntry, what: string, answer: Promise<WorkerView>): Promise<boolean> {
  try {
    applyWorkers([await answer]);
    return true;
  } catch (error) {
    showError(`${what} ${entry.worker.peek().name} was refused`, error);
    return false;
  }
}

export async function create(worker: NewWorker): Promise<string> {
  const created = await api.createWorker(worker);
  applyWorkers([created]);
  return created.id;
}
