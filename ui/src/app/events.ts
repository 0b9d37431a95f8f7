/**
 * Interprets the control plane's events without the network: which events form a snapshot, which change one
 * worker, and which carry load and labs. stream.ts owns the connection.
 */

import type { LabChange, LabStatus } from "../features/labs/labs";
import type { LabletSessionView, Sample, WorkerView } from "../generated/api";
import { SESSION_EVENTS, STREAM_EVENT, WORKER_EVENTS } from "../generated/rules";

export interface FleetSink {
  replaceWorkers(workers: readonly WorkerView[]): void;
  applyWorkers(workers: readonly WorkerView[]): void;
  applySamples(samples: readonly Sample[]): void;
  applyLabChange(change: LabChange): void;
  applyLabStatus(status: LabStatus): void;
  /** Whose labs are where has changed. */
  labsChanged(): void;
  /** A snapshot of the lablet sessions begins: what is known was true before it. */
  beginSessions(): void;
  replaceSessions(sessions: readonly LabletSessionView[]): void;
  applySessions(sessions: readonly LabletSessionView[]): void;
}

interface SampleBatch {
  readonly events: readonly Sample[];
}

interface SnapshotStart {
  readonly workers: number;
  readonly sessions: number;
}

interface WorkerEvent {
  readonly worker: WorkerView;
}

interface SessionEvent {
  readonly session: LabletSessionView;
}

interface SessionBatch {
  readonly sessions: readonly LabletSessionView[];
}

/** Events after which the list of all labs is fetched again. */
export const LAB_EVENTS: readonly string[] = [
  STREAM_EVENT.LAB_DISCOVERED,
  STREAM_EVENT.LAB_LEAKED,
  STREAM_EVENT.LAB_REMOVED,
];

/** Every change of a worker or a lablet session, load and labs, but not the load of every node. */
export const SUBSCRIBED_TYPES: readonly string[] = [
  STREAM_EVENT.WORKER_SNAPSHOT,
  STREAM_EVENT.SESSIONS_SNAPSHOT,
  ...WORKER_EVENTS,
  ...SESSION_EVENTS,
  STREAM_EVENT.METRICS_UPDATED,
  STREAM_EVENT.LAB_STATE_CHANGE,
  STREAM_EVENT.LAB_STATUS_UPDATED,
  ...LAB_EVENTS,
];

export class EventReader {
  readonly #sink: FleetSink;
  readonly #snapshot = new Map<string, WorkerView>();
  #awaited = 0;
  #arrived: WorkerView[] = [];
  #samples: Sample[] = [];
  #sessions: LabletSessionView[] = [];
  #sessionSnapshot: LabletSessionView[] = [];
  #awaitedSessions = 0;

  constructor(sink: FleetSink) {
    this.#sink = sink;
  }

  /** Whether a snapshot has begun and is incomplete. */
  get isMidSnapshot(): boolean {
    return this.#awaited > 0 || this.#awaitedSessions > 0;
  }

  /** A resumed stream sends no snapshot: only missed events follow. */
  connected(data: string, isResumed: boolean): void {
    const start = parse<SnapshotStart>(data);
    if (start.workers === 0 && start.sessions === 0 && isResumed) return;
    this.#beginSnapshots(start);
  }

  reset(data: string): void {
    this.#beginSnapshots(parse<SnapshotStart>(data));
  }

  snapshot(data: string): void {
    if (this.#awaited === 0) {
      this.changed(data);
      return;
    }
    const { worker } = parse<WorkerEvent>(data);
    this.#snapshot.set(worker.id, worker);
    this.#awaited -= 1;
    if (this.#awaited === 0) this.#endSnapshot();
  }

  sessionsSnapshot(data: string): void {
    const { sessions } = parse<SessionBatch>(data);
    if (this.#awaitedSessions === 0) {
      this.#sessions.push(...sessions);
      return;
    }
    this.#sessionSnapshot.push(...sessions);
    this.#awaitedSessions = Math.max(0, this.#awaitedSessions - sessions.length);
    if (this.#awaitedSessions === 0) this.#endSessionSnapshot();
  }

  changed(data: string): void {
    this.#arrived.push(parse<WorkerEvent>(data).worker);
  }

  sessionChanged(data: string): void {
    this.#sessions.push(parse<SessionEvent>(data).session);
  }

  samples(data: string): void {
    this.#samples.push(...parse<SampleBatch>(data).events);
  }

  labChange(data: string): void {
    this.#sink.applyLabChange(parse<LabChange>(data));
  }

  labStatus(data: string): void {
    this.#sink.applyLabStatus(parse<LabStatus>(data));
    this.labsChanged();
  }

  labsChanged(): void {
    this.#sink.labsChanged();
  }

  /** Hand over all changes that have arrived at once: a burst costs one rendering. */
  flush(): void {
    if (this.#awaitedSessions === 0) this.#flushSessions();
    if (this.#awaited > 0) return;
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
    this.#awaitedSessions = 0;
    this.#sessionSnapshot = [];
  }

  #flushSessions(): void {
    const sessions = this.#sessions;
    this.#sessions = [];
    if (sessions.length > 0) this.#sink.applySessions(sessions);
  }

  #beginSnapshots({ workers, sessions }: SnapshotStart): void {
    this.#beginSnapshot(workers);
    this.#sessions = [];
    this.#sessionSnapshot = [];
    this.#awaitedSessions = sessions;
    this.#sink.beginSessions();
    if (sessions === 0) this.#endSessionSnapshot();
  }

  #endSessionSnapshot(): void {
    this.#sink.replaceSessions(this.#sessionSnapshot);
    this.#sessionSnapshot = [];
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
