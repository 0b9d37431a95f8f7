/** What a request to many workers will do, and what not, each with its reason. */

import type { WorkerView } from "../../generated/api";
import { formatCount } from "../../kit/format";
import { canBePaused, NOT_PAUSABLE } from "../idle/idle";
import { actionDisabledReason } from "../worker/model";

export const BULK_ACTIONS = ["start", "stop", "drain", "hold", "adopt", "delete"] as const;
export type BulkAction = (typeof BULK_ACTIONS)[number];

export interface BulkPlan {
  readonly changed: readonly WorkerView[];
  /** By the reason why they are left as they are. */
  readonly skipped: ReadonlyMap<string, readonly WorkerView[]>;
}

export function planOf(workers: readonly WorkerView[], action: BulkAction): BulkPlan {
  const changed: WorkerView[] = [];
  const skipped = new Map<string, WorkerView[]>();
  for (const worker of workers) {
    const reason = reasonAgainst(worker, action);
    if (reason === null) changed.push(worker);
    else skipped.set(reason, [...(skipped.get(reason) ?? []), worker]);
  }
  return { changed, skipped };
}

function reasonAgainst(worker: WorkerView, action: BulkAction): string | null {
  if (action === "adopt") return worker.is_trusted ? "LCM trusts it already." : null;
  if (action === "hold") return canBePaused(worker) ? null : NOT_PAUSABLE;
  return actionDisabledReason(worker, action);
}

/** What is lost by the request; null if nothing is. */
export function warningOf(action: BulkAction, changed: readonly WorkerView[]): string | null {
  const sessions = changed.reduce((count, worker) => count + worker.sessions.length, 0);
  const inUse =
    sessions === 0
      ? ""
      : ` ${formatCount(sessions, "lablet session")} on them ${sessions === 1 ? "has its lab" : "have their labs"} there.`;
  if (action === "delete") return `Their disks are lost with every lab on them, which cannot be undone.${inUse}`;
  return action === "stop" ? `Running nodes are powered off.${inUse}` : null;
}
