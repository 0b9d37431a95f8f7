/**
 * Interprets the control plane's events without the network: which events form a snapshot, which change one
 * worker, and which carry load and labs. stream.ts owns the connection.
 */

import type { LabChange, LabStatus } from "../features/labs/labs";
import type { Sample, WorkerView } from "../generated/api";
import { STREAM_EVENT, WORKER_EVENTS } from "../generated/rules";

export interface FleetSink {
  replaceWorkers(workers: readonly WorkerView[]): void;
  applyWorkers(workers: readonly WorkerView[]): void;
  applySamples(samples: readonly Sample[]): void;
  applyLabChange(change: LabChange): void;
  applyLabStatus(status: LabStatus): void;
}

interface SampleBatch {
  readonly events: readonly Sample[];
}

interface SnapshotStart {
  readonly workers: number;
}

interface WorkerEvent {
  readonly worker: WorkerView;
}

/** What the page subscribes to: every change of a worker, load and labs, but not the load of every node. */
export const SUBSCRIBED_TYPES: readonly string[] = [
  STREAM_EVENT.WORKER_SNAPSHOT,
  ...WORKER_EVENTS,
  STREAM_EVENT.METRICS_UPDATED,
  STREAM_EVENT.LAB_STATE_CHANGE,
  STREAM_EVENT.LAB_STATUS_UPDATED,
];

export class EventReader {
  readonly #sink: FleetSink;
  readonly #snapshot = new Map<string, WorkerView>();
  #awaited = 0;
  #arrived: WorkerView[] = [];
  #samples: Sample[] = [];

  constructor(sink: FleetSink) {
    this.#sink = sink;
  }

  /** Whether a snapshot has begun and is incomplete. */
  get isMidSnapshot(): boolean {
    return this.#awaited > 0;
  }

  /** A resumed stream sends no snapshot: only missed events follow. */
  connected(data: string, isResumed: boolean): void {
    const { workers } = parse<SnapshotStart>(data);
    if (workers > 0 || !isResumed) this.#beginSnapshot(workers);
  }

  reset(data: string): void {
    this.#beginSnapshot(parse<SnapshotStart>(data).workers);
  }

  snapshot(data: string): void {
    if (!this.isMidSnapshot) {
      this.changed(data);
      return;
    }
    const { worker } = parse<WorkerEvent>(data);
    this.#snapshot.set(worker.id, worker);
    this.#awaited -= 1;
    if (this.#awaited === 0) this.#endSnapshot();
  }

  changed(data: string): void {
    this.#arrived.push(parse<WorkerEvent>(data).worker);
  }

  samples(data: string): void {
    this.#samples.push(...parse<SampleBatch>(data).events);
  }

  labChange(data: string): void {
    this.#sink.applyLabChange(parse<LabChange>(data));
  }

  labStatus(data: string): void {
    this.#sink.applyLabStatus(parse<LabStatus>(data));
  }

  /** Hand over all changes that have arrived at once: a burst costs one rendering. */
  flush(): void {
    if (this.isMidSnapshot) return;
    const workers = this.#arrived;
    const samples = this.#samples;
    this.#arrived = [];
    this.#samples = [];
    if (workers.length > 0) this.#sink.applyWorkers(workers);
    if (samples.length > 0) this.#sink.applySamples(samples);
  }

  /** Drop an incomplete snapshot: the connection is lost. */
  abandonSnapshot(): void {
    this.#awaited = 0;
    this.#snapshot.clear();
  }

  #beginSnapshot(workers: number): void {
    this.#snapshot.clear();
    this.#arrived = [];
    this.#awaited = workers;
    if (workers === 0) this.#endSnapshot();
  }

  #endSnapshot(): void {
    this.#sink.replaceWorkers([...this.#snapshot.values()]);
    this.#snapshot.clear();
  }
}

function parse<T>(data: string): T {
  return JSON.parse(data) as T;
}
