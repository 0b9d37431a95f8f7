/**
 * Reads the control plane's event stream without touching the network: which events add up to a
 * snapshot, and which change one worker. stream.ts owns the connection.
 */

import type { WorkerView } from "./model";

export interface FleetSink {
  replaceWorkers(workers: readonly WorkerView[]): void;
  applyWorkers(workers: readonly WorkerView[]): void;
}

interface SnapshotStart {
  readonly workers: number;
}

interface WorkerEvent {
  readonly worker: WorkerView;
}

export const WORKER_EVENTS = [
  "worker.created",
  "worker.status.updated",
  "worker.endpoint.updated",
  "worker.terminated",
] as const;

export class EventReader {
  readonly #sink: FleetSink;
  readonly #snapshot = new Map<string, WorkerView>();
  #awaited = 0;
  #arrived: WorkerView[] = [];

  constructor(sink: FleetSink) {
    this.#sink = sink;
  }

  /** A snapshot has begun and its end has not come: what is known may be incomplete. */
  get isMidSnapshot(): boolean {
    return this.#awaited > 0;
  }

  /** A resumed stream sends no snapshot: only what was missed follows. */
  connected(data: string, isResumed: boolean): void {
    const { workers } = parse<SnapshotStart>(data);
    if (workers > 0 || !isResumed) this.#beginSnapshot(workers);
  }

  reset(data: string): void {
    this.#beginSnapshot(parse<SnapshotStart>(data).workers);
  }

  snapshot(data: string): void {
    if (!this.isMidSnapshot) return this.changed(data);
    const { worker } = parse<WorkerEvent>(data);
    this.#snapshot.set(worker.id, worker);
    this.#awaited -= 1;
    if (this.#awaited === 0) this.#endSnapshot();
  }

  changed(data: string): void {
    this.#arrived.push(parse<WorkerEvent>(data).worker);
  }

  /** Hands over what has arrived, all at once: a burst costs one rendering. */
  flush(): void {
    if (this.isMidSnapshot || this.#arrived.length === 0) return;
    const workers = this.#arrived;
    this.#arrived = [];
    this.#sink.applyWorkers(workers);
  }

  /** The connection is gone, and with it the rest of a snapshot. */
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
