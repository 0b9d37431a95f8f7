/** What takes back an action: offered only while the server allows it, and refused in the server's words. */

import { ACTION_LABEL } from "../features/worker/model";
import type { Action, Hold, WorkerView } from "../generated/api";
import { formatCount } from "../kit/format";
import * as api from "./api";
import { denialFor } from "./session";
import { sendAll } from "./several";
import { applyWorkers } from "./store";
import { showError, showUndo } from "./toasts";

/** What a deletion and a retry end does not come back. */
const OPPOSITE: Readonly<Partial<Record<Action, Action>>> = {
  start: "stop",
  stop: "start",
  drain: "cancel-drain",
  "cancel-drain": "drain",
};

/** The action that takes the answered one back, or null if none does now. */
export function opposite(action: Action, before: WorkerView, answer: WorkerView): Action | null {
  const back = OPPOSITE[action];
  // A start would not bring back the drain that a stop has ended early.
  if (back === undefined || before.status === "draining") return null;
  return answer.possible_actions.includes(back) ? back : null;
}

export interface Done {
  readonly before: WorkerView;
  readonly answer: WorkerView;
}

/** Offer to undo an action that was accepted for these workers. */
export function offerUndo(action: Action, done: readonly Done[]): void {
  const back = OPPOSITE[action];
  const undoable = done.filter(({ before, answer }) => opposite(action, before, answer) !== null);
  if (back === undefined || undoable.length === 0 || denialFor(back) !== null) return;
  offer(
    `${ACTION_LABEL[action]} requested: ${named(done)}`,
    `Undo requests ${ACTION_LABEL[back].toLowerCase()}${undoable.length < done.length ? ` for ${formatCount(undoable.length, "worker")}` : ""}.`,
    undoable,
    (id) => api.act(id, back),
  );
}

/** Offer to bring back the hold of before, or none. */
export function offerUndoOfHold(what: string, done: readonly Done[]): void {
  const holds = new Map(done.map(({ before }) => [before.id, before.hold]));
  offer(`${what}: ${named(done)}`, "Undo brings back what was before.", done, (id) => {
    return restore(id, holds.get(id) ?? null);
  });
}

function restore(id: string, hold: Hold | null): Promise<WorkerView> {
  return hold === null ? api.endHold(id) : api.hold(id, hold.until, hold.reason);
}

function offer(title: string, detail: string, done: readonly Done[], undo: (id: string) => Promise<WorkerView>): void {
  showUndo(title, detail, () => {
    void sendAll(done, async ({ answer }) => applyWorkers([await undo(answer.id)])).then((refusals) => {
      for (const { item, message } of refusals) showError(`${item.answer.name}: not undone`, new Error(message));
    });
  });
}

function named(done: readonly Done[]): string {
  const [first] = done;
  return done.length === 1 && first !== undefined ? first.answer.name : formatCount(done.length, "worker");
}
