/** Requests about a worker. The page shows a request at once and its result with the response. */

import { signal } from "@preact/signals";
import { ACTION_LABEL } from "../features/worker/model";
import type { Action, BrowserSession, LabView, NewWorker, TokenView, WorkerView } from "../generated/api";
import * as api from "./api";
import { denialFor } from "./session";
import { sendAll } from "./several";
import { applyWorkers, type WorkerEntry } from "./store";
import { showError } from "./toasts";
import { type Done, offerUndo } from "./undo";

export type SessionsDialogKind = "end-sessions" | "extend-sessions" | "retry-session" | "abandon-session";

/** What can be requested of many workers at once. */
export type BulkRequest = Exclude<Action, "retry" | "cancel-drain">;

export type OpenDialog =
  | {
      readonly kind:
        | "create"
        | "fleet-license"
        | "add-definition"
        | "discovery"
        | "new-token"
        | "palette"
        | "shortcuts"
        | "sign-out-everywhere";
    }
  | { readonly kind: "template"; readonly name: string; readonly isChanged: boolean }
  | { readonly kind: "token-created"; readonly name: string; readonly token: string }
  | { readonly kind: "revoke-token"; readonly token: TokenView }
  | { readonly kind: "sign-out-person"; readonly browser: BrowserSession }
  | { readonly kind: "remove-lab" | "adopt-lab"; readonly lab: LabView }
  | { readonly kind: SessionsDialogKind; readonly ids: readonly string[] }
  | { readonly kind: "hold" | "adopt"; readonly entries: readonly WorkerEntry[] }
  | { readonly kind: "bulk"; readonly action: BulkRequest; readonly entries: readonly WorkerEntry[] }
  | {
      readonly kind: "delete" | "register" | "deregister" | "cml-login" | "certificate" | "tags";
      readonly entry: WorkerEntry;
    };

export const openDialog = signal<OpenDialog | null>(null);

export function openCreateDialog(): void {
  if (denialFor("create") === null) openDialog.value = { kind: "create" };
}

/** Ask before sessions are ended, extended or tried again. */
export function openSessionsDialog(kind: SessionsDialogKind, ids: readonly string[]): void {
  openDialog.value = { kind, ids };
}

/** Ask before a lab is removed, and as what it is adopted. */
export function openLabDialog(kind: "remove-lab" | "adopt-lab", lab: LabView): void {
  openDialog.value = { kind, lab };
}

export function closeDialog(): void {
  openDialog.value = null;
}

/** Request the action, after a confirmation if it cannot be undone. */
export function requestAction(entry: WorkerEntry, action: Action): void {
  if (action === "delete") openDialog.value = { kind: "delete", entry };
  else void sendActions([entry], action);
}

/** Request the action of each, and offer to undo it; a refusal is announced for its worker, the others go on. */
export async function sendActions(
  chosen: readonly WorkerEntry[],
  action: Action,
  onAnswer?: (answered: number) => void,
): Promise<void> {
  const done: Done[] = [];
  await sendAll(
    chosen,
    async (entry) => {
      const before = entry.worker.peek();
      const answer = await sendAction(entry, action);
      if (answer !== null) done.push({ before, answer });
    },
    onAnswer,
  );
  offerUndo(action, done);
}

async function sendAction(entry: WorkerEntry, action: Action): Promise<WorkerView | null> {
  entry.pending.value = action;
  try {
    const answer = await api.act(entry.id, action);
    applyWorkers([answer]);
    return answer;
  } catch (error) {
    showError(`${ACTION_LABEL[action]} ${entry.worker.value.name} failed`, error);
    return null;
  } finally {
    entry.pending.value = null;
  }
}

/** Await the response to a change of a worker; returns whether it was accepted. */
export async function applyChange(entry: WorkerEntry, what: string, answer: Promise<WorkerView>): Promise<boolean> {
  try {
    applyWorkers([await answer]);
    return true;
  } catch (error) {
    showError(`${what} ${entry.worker.peek().name} failed`, error);
    return false;
  }
}

export async function create(worker: NewWorker): Promise<string> {
  const created = await api.createWorker(worker);
  applyWorkers([created]);
  return created.id;
}
