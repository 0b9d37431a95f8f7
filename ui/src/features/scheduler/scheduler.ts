/** The rules of the scheduler's page that need no browser: what fills a worker. */

import type { Capacity, LabletSessionView, Outcome, WorkerView } from "../../generated/api";
import type { Color } from "../../generated/rules";
import { formatUntil } from "../../kit/format";
import { isEnded, sessionInfo } from "../lablets/model";

export interface Segment {
  readonly session: LabletSessionView;
  /** In percent of the bin. */
  readonly cpu: number;
  readonly memory: number;
  readonly color: Color;
  /** A session that waits and counts on the worker: it has no claim yet. */
  readonly isNominated: boolean;
}

/** A worker with what it has room for, and the sessions that take it. */
export interface Bin {
  readonly worker: WorkerView;
  readonly declared: Capacity;
  readonly segments: readonly Segment[];
  readonly claimed: Capacity;
}

/** Workers whose size is known, by name, each with its claims and then with what counts on it. */
export function binsOf(workers: readonly WorkerView[], sessions: readonly LabletSessionView[]): readonly Bin[] {
  const byWorker = new Map<string, LabletSessionView[]>();
  for (const session of sessions) {
    const id = isEnded(session) ? null : (session.worker_id ?? session.nominated?.worker_id ?? null);
    if (id !== null) byWorker.set(id, [...(byWorker.get(id) ?? []), session]);
  }
  return workers
    .filter(({ status }) => status !== "terminated")
    .flatMap((worker) => binOf(worker, byWorker.get(worker.id) ?? []))
    .sort((a, b) => a.worker.name.localeCompare(b.worker.name, "en", { numeric: true }));
}

function binOf(worker: WorkerView, sessions: readonly LabletSessionView[]): readonly Bin[] {
  const declared = worker.declared_capacity;
  if (declared === null) return [];
  const placed = sessions.filter(({ worker_id }) => worker_id === worker.id);
  const nominated = sessions.filter(({ worker_id }) => worker_id !== worker.id);
  const all = [...placed, ...nominated];
  // CPU may be shared, so that the claims are more than the worker has: then they fill the bin.
  const cpu = Math.max(declared.cpu, sum(all, "cpu"));
  const memory = Math.max(declared.memory_gb, sum(all, "memory_gb"));
  const segments = all.map((session) => ({
    session,
    cpu: (100 * session.demand.needs.cpu) / cpu,
    memory: (100 * session.demand.needs.memory_gb) / memory,
    color: sessionInfo(session.status).color,
    isNominated: session.worker_id !== worker.id,
  }));
  return [{ worker, declared, segments, claimed: worker.allocated_capacity }];
}

function sum(sessions: readonly LabletSessionView[], dimension: "cpu" | "memory_gb"): number {
  return sessions.reduce((total, { demand }) => total + demand.needs[dimension], 0);
}

/** "12 of 48 CPU". */
export function filledText(used: number, declared: number, unit: string): string {
  const number = (value: number) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  return `${number(used)} of ${number(declared)} ${unit}`;
}

/** "expected at 09:41"; what the next cycle places is expected within a minute. */
export function expectedText(at: string, now: number): string {
  const moment = Date.parse(at);
  return moment - now < 60_000 ? "expected within a minute" : `expected at ${formatUntil(moment, now)}`;
}

const OUTCOMES: Readonly<Record<Outcome, { readonly label: string; readonly color: Color }>> = {
  assign: { label: "Placed", color: "green" },
  scale_up: { label: "Workers requested", color: "blue" },
  wait: { label: "Waits", color: "orange" },
  impossible: { label: "Impossible", color: "red" },
};

/** An outcome of a newer server is shown by its name. */
export function outcomeInfo(outcome: Outcome): { readonly label: string; readonly color: Color } {
  return OUTCOMES[outcome] ?? { label: outcome, color: "grey" };
}
