/**
 * The live load of running workers. Each worker has a signal of its own, so that one sample renders one cell;
 * rows that are not visible render nothing (kit/visibility.ts).
 */

import { batch, type Signal, signal } from "@preact/signals";
import type { MonitorState, Resources, Sample, WorkerView } from "../../generated/api";
import { CLOUDWATCH_WAITS_MS, MAX_LOAD_POINTS } from "../../generated/rules";

export interface Point {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly cpu: number | null;
  readonly memory: number | null;
  readonly disk: number | null;
}

export type Measure = "cpu" | "memory" | "disk";

export const MEASURES: readonly { readonly id: Measure; readonly label: string }[] = [
  { id: "cpu", label: "CPU" },
  { id: "memory", label: "Memory" },
  { id: "disk", label: "Disk" },
];

export interface Load {
  readonly newest: Point;
  readonly nodes: number | null;
  readonly points: Points;
}

const WIDTH = 4;

/**
 * The newest points of a worker, oldest first, as numbers in one array of a fixed size: as objects those of 2,000
 * workers would take more and more memory for ten minutes.
 */
export class Points {
  static readonly NONE = new Points(new Float64Array(0), 0);

  readonly length: number;
  private readonly values: Float64Array;

  private constructor(values: Float64Array, length: number) {
    this.values = values;
    this.length = length;
  }

  static of(points: readonly Point[]): Points {
    return points.reduce<Points>((all, point) => all.with(point), Points.NONE);
  }

  /** These and a newer one; the oldest makes room for it. */
  with({ at, cpu, memory, disk }: Point): Points {
    const kept = Math.min(this.length, MAX_LOAD_POINTS - 1);
    const values = new Float64Array(WIDTH * MAX_LOAD_POINTS);
    values.set(this.values.subarray(WIDTH * (this.length - kept), WIDTH * this.length));
    values.set([at, cpu ?? Number.NaN, memory ?? Number.NaN, disk ?? Number.NaN], WIDTH * kept);
    return new Points(values, kept + 1);
  }

  *[Symbol.iterator](): Generator<Point> {
    for (let start = 0; start < WIDTH * this.length; start += WIDTH) {
      const [at = 0, cpu, memory, disk] = this.values.subarray(start, start + WIDTH);
      yield { at, cpu: nullable(cpu), memory: nullable(memory), disk: nullable(disk) };
    }
  }
}

function nullable(value: number | undefined): number | null {
  return value === undefined || Number.isNaN(value) ? null : value;
}

/** Data younger than this is shown as live. */
export const LIVE_MS = 15_000;

const loads = new Map<string, Signal<Load | null>>();

export function loadOf(workerId: string): Signal<Load | null> {
  let load = loads.get(workerId);
  if (load === undefined) {
    load = signal<Load | null>(null);
    loads.set(workerId, load);
  }
  return load;
}

export function applySamples(samples: readonly Sample[]): void {
  batch(() => {
    for (const sample of samples) {
      const load = loadOf(sample.worker_id);
      load.value = withSample(load.peek(), sample);
    }
  });
}

/** The load after this sample; the same object if the sample is not newer. */
export function withSample(load: Load | null, sample: Sample): Load {
  const newest: Point = {
    at: Date.parse(sample.collected_at),
    cpu: sample.cpu_utilization ?? null,
    memory: sample.memory_utilization ?? null,
    disk: sample.disk_utilization ?? null,
  };
  const nodes = sample.nodes_count ?? load?.nodes ?? null;
  if (load === null) return { newest, nodes, points: Points.NONE.with(newest) };
  const waits = sample.source === "cloudwatch" ? CLOUDWATCH_WAITS_MS : 0;
  if (newest.at <= load.newest.at + waits) return load;
  return { newest, nodes, points: load.points.with(newest) };
}

/** Insert the recorded load before the points that the stream has delivered: the stream wins. */
export function applyHistory(workerId: string, resources: Resources): void {
  const known = loadOf(workerId);
  const streamed = known.peek();
  const newer = [...(streamed?.points ?? [])];
  const since = newer[0]?.at ?? Number.POSITIVE_INFINITY;
  const older = resources.points
    .map(([at, cpu, memory, disk]) => ({ at: at * 1_000, cpu, memory, disk }))
    .filter(({ at }) => at < since);
  const points = [...older, ...newer];
  const newest = points.at(-1);
  if (newest === undefined) return;
  const nodes =
    streamed?.nodes ?? resources.samples.find((sample) => typeof sample.nodes_count === "number")?.nodes_count ?? null;
  known.value = { newest, nodes, points: Points.of(points.slice(-MAX_LOAD_POINTS)) };
}

/** Clear the load of workers that are no longer monitored. */
export function clearInactiveLoads(workers: readonly WorkerView[]): void {
  for (const worker of workers) {
    const load = loads.get(worker.id);
    if (load !== undefined && !isMonitored(worker)) load.value = null;
  }
}

/** Drop the load of every worker but these. */
export function retainLoads(workerIds: ReadonlySet<string>): void {
  for (const id of loads.keys()) {
    if (!workerIds.has(id)) loads.delete(id);
  }
}

export function isMonitored(worker: WorkerView): boolean {
  return worker.status === "running" || worker.status === "draining";
}

export type Link = "websocket" | "polling" | "off";

/** How the controller receives a worker's data. */
export function linkOf(worker: WorkerView): Link {
  if (!isMonitored(worker)) return "off";
  return worker.ws_connected ? "websocket" : "polling";
}

const WAITING_FOR: Readonly<Partial<Record<MonitorState, string>>> = {
  connecting: "connecting",
  authenticating: "authenticating",
  reconnecting: "reconnecting",
  failed: "the live connection failed",
  disabled: "the live connection is turned off",
};

/** The link as text. */
export function linkMeaning(worker: WorkerView): string {
  switch (linkOf(worker)) {
    case "websocket":
      return "Connected by WebSocket: live data";
    case "polling": {
      const why = worker.ws_status === null ? undefined : WAITING_FOR[worker.ws_status];
      return why === undefined ? "Polled once a minute" : `Polled once a minute: ${why}`;
    }
    case "off":
      return "Not running: not monitored";
  }
}

/** The SVG path of a measure in a box of 100 by 100; a gap where the value is unknown. */
export function sparklinePath(load: Iterable<Point>, measure: Measure): string {
  const points = [...load];
  const first = points[0]?.at ?? 0;
  const span = Math.max(1, (points.at(-1)?.at ?? 0) - first);
  let path = "";
  let isDrawing = false;
  for (const point of points) {
    const value = point[measure];
    if (value === null) {
      isDrawing = false;
      continue;
    }
    const x = (((point.at - first) / span) * 100).toFixed(1);
    const y = (100 - Math.min(100, Math.max(0, value))).toFixed(1);
    path += `${isDrawing ? "L" : "M"}${x} ${y}`;
    isDrawing = true;
  }
  return path;
}

export function formatPercent(value: number | null): string {
  return value === null ? "—" : `${Math.round(value)}%`;
}
