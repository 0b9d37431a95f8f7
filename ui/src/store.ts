/**
 * All that the page knows about the fleet. Each worker has a signal of its own, so that one
 * worker's change renders one row. Answers and events arrive in any order: versions decide.
 */

import { batch, computed, type Signal, signal } from "@preact/signals";
import type { Action, DesiredStatus, RegionView, WorkerTemplate, WorkerView } from "./generated/api";
import { desiredAfter, statusInfo, usdPerHour } from "./model";

export interface WorkerEntry {
  readonly id: string;
  readonly worker: Signal<WorkerView>;
  /** The action a person asked for that has not been answered yet. */
  readonly pending: Signal<Action | null>;
}

/** What people want, counting the wish that is still on its way. */
export function desiredStatus(entry: WorkerEntry): DesiredStatus {
  const pending = entry.pending.value;
  return pending === null ? entry.worker.value.desired_status : desiredAfter(pending);
}

export const entries = signal<ReadonlyMap<string, WorkerEntry>>(new Map());
export const isLoaded = signal(false);
export const templates = signal<readonly WorkerTemplate[]>([]);
export const regions = signal<readonly RegionView[]>([]);

/** What a screen reader is told about changes that nobody asked for just now. */
export const announcement = signal("");

/** Counts the snapshots: with each one the page begins anew, and whatever events have told before may be old. */
export const snapshots = signal(0);

/** Counts whenever a worker came, went or moved on: time to ask again for what is derived from all of them. */
export const moves = signal(0);

export const costPerHour = computed(() =>
  usdPerHour(
    [...entries.value.values()].map((entry) => entry.worker.value),
    templates.value,
  ),
);

/** Takes in what is newer than what is known and leaves the rest. */
export function applyWorkers(workers: readonly WorkerView[]): void {
  const next = new Map(entries.peek());
  batch(() => {
    const changed = workers.filter((worker) => takeIn(worker, next));
    const isLarger = next.size > entries.peek().size;
    if (isLarger) entries.value = next;
    if (isLarger || changed.length > 0) moves.value += 1;
    if (changed.length > 0) announce(changed);
  });
}

/** Says whether a worker that was known has another status now. */
function takeIn(worker: WorkerView, into: Map<string, WorkerEntry>): boolean {
  const entry = into.get(worker.id);
  if (entry === undefined) {
    into.set(worker.id, newEntry(worker));
    return false;
  }
  const known = entry.worker.peek();
  if (worker.version <= known.version) return false;
  entry.worker.value = worker;
  return worker.status !== known.status;
}

/**
 * Forgets everything that is not among these workers, whatever its version. Only terminated workers
 * stay: snapshots leave them out, and they never change again.
 */
export function replaceWorkers(workers: readonly WorkerView[]): void {
  const known = entries.peek();
  batch(() => {
    const next = new Map([...known].filter(([, entry]) => entry.worker.peek().status === "terminated"));
    for (const worker of workers) {
      // A row keeps its entry, so that it is not drawn anew.
      const entry = known.get(worker.id) ?? newEntry(worker);
      entry.worker.value = worker;
      next.set(worker.id, entry);
    }
    entries.value = next;
    isLoaded.value = true;
    snapshots.value += 1;
    moves.value += 1;
  });
}

export function forgetEverything(): void {
  batch(() => {
    entries.value = new Map();
    isLoaded.value = false;
    templates.value = [];
    regions.value = [];
    announcement.value = "";
  });
}

function newEntry(worker: WorkerView): WorkerEntry {
  return { id: worker.id, worker: signal(worker), pending: signal<Action | null>(null) };
}

const MAX_ANNOUNCED = 3;

function announce(changed: readonly WorkerView[]): void {
  announcement.value =
    changed.length > MAX_ANNOUNCED
      ? `${changed.length} workers changed status`
      : changed.map((worker) => `${worker.name} is ${statusInfo(worker.status).label.toLowerCase()}`).join(", ");
}
