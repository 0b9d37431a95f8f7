/**
 * The fleet as the page knows it. Each worker has a signal of its own, so that a change of one worker renders
 * one row. Responses and events arrive in any order: versions decide.
 */

import { batch, computed, type Signal, signal } from "@preact/signals";
import { desiredAfter, statusInfo, usdPerHour } from "../features/worker/model";
import type { Action, DesiredStatus, RegionView, WorkerTemplate, WorkerView } from "../generated/api";

export interface WorkerEntry {
  readonly id: string;
  readonly worker: Signal<WorkerView>;
  /** The action that was requested and not answered yet. */
  readonly pending: Signal<Action | null>;
}

/** The desired status, including a request that is not answered yet. */
export function desiredStatus(entry: WorkerEntry): DesiredStatus {
  const pending = entry.pending.value;
  return pending === null ? entry.worker.value.desired_status : desiredAfter(pending);
}

export const entries = signal<ReadonlyMap<string, WorkerEntry>>(new Map());
export const isLoaded = signal(false);
export const templates = signal<readonly WorkerTemplate[]>([]);
export const regions = signal<readonly RegionView[]>([]);

/** What a screen reader announces: changes that the user did not just request. */
export const announcement = signal("");

/** Counts snapshots: whatever events carried before a snapshot may be outdated. */
export const snapshotCount = signal(0);

/** Counts changes of the fleet (a worker added, removed, or in another status): derived data is then fetched again. */
export const fleetChanges = signal(0);

export const costPerHour = computed(() =>
  usdPerHour(
    [...entries.value.values()].map((entry) => entry.worker.value),
    templates.value,
  ),
);

/** Apply the workers that are newer than the known ones. */
export function applyWorkers(workers: readonly WorkerView[]): void {
  const next = new Map(entries.peek());
  batch(() => {
    const changed = workers.filter((worker) => merge(worker, next));
    const isLarger = next.size > entries.peek().size;
    if (isLarger) entries.value = next;
    if (isLarger || changed.length > 0) fleetChanges.value += 1;
    if (changed.length > 0) announce(changed);
  });
}

/** Apply one worker; returns whether it was known and has another status now. */
function merge(worker: WorkerView, into: Map<string, WorkerEntry>): boolean {
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
 * Replace the fleet by these workers, whatever their version. Terminated workers stay: snapshots leave them
 * out, and they never change again.
 */
export function replaceWorkers(workers: readonly WorkerView[]): void {
  const known = entries.peek();
  batch(() => {
    const next = new Map([...known].filter(([, entry]) => entry.worker.peek().status === "terminated"));
    for (const worker of workers) {
      // A row keeps its entry, so that it is not rendered again.
      const entry = known.get(worker.id) ?? newEntry(worker);
      entry.worker.value = worker;
      next.set(worker.id, entry);
    }
    entries.value = next;
    isLoaded.value = true;
    snapshotCount.value += 1;
    fleetChanges.value += 1;
  });
}

export function clearStore(): void {
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
