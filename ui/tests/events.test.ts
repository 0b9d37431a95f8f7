import { beforeEach, describe, expect, test } from "vitest";
import { EventReader, type FleetSink } from "../src/app/events";
import type { LabChange, LabStatus } from "../src/features/labs/labs";
import type { LabletSessionView, Sample, WorkerView } from "../src/generated/api";
import { lablet, worker } from "./examples";

class RecordingSink implements FleetSink {
  readonly calls: [string, ...string[]][] = [];
  begun = 0;

  replaceWorkers(workers: readonly WorkerView[]): void {
    this.calls.push(["replace", ...workers.map(({ name }) => name)]);
  }

  applyWorkers(workers: readonly WorkerView[]): void {
    this.calls.push(["apply", ...workers.map(({ name }) => name)]);
  }

  applySamples(samples: readonly Sample[]): void {
    this.calls.push(["samples", ...samples.map(({ worker_id }) => worker_id)]);
  }

  applyLabChange(change: LabChange): void {
    this.calls.push(["lab change", change.lab_id]);
  }

  applyLabStatus(status: LabStatus): void {
    this.calls.push(["lab status", status.lab_id]);
  }

  labsChanged(): void {
    this.calls.push(["labs changed"]);
  }

  beginSessions(): void {
    this.begun += 1;
  }

  replaceSessions(sessions: readonly LabletSessionView[]): void {
    if (sessions.length > 0) this.calls.push(["replace sessions", ...sessions.map(({ id }) => id)]);
  }

  applySessions(sessions: readonly LabletSessionView[]): void {
    this.calls.push(["sessions", ...sessions.map(({ id }) => id)]);
  }
}

const about = (name: string) => JSON.stringify({ worker: worker({ name }) });
const beginning = (workers: number, sessions = 0) => JSON.stringify({ workers, sessions });
const lablets = (...ids: readonly string[]) => JSON.stringify({ sessions: ids.map((id) => lablet({ id })) });

describe("the event stream", () => {
  let sink: RecordingSink;
  let reader: EventReader;

  beforeEach(() => {
    sink = new RecordingSink();
    reader = new EventReader(sink);
  });

  test("a snapshot replaces everything once it is complete, and not before", () => {
    reader.connected(beginning(2), false);
    reader.snapshot(about("a"));
    reader.flush();
    expect(sink.calls).toEqual([]);
    reader.snapshot(about("b"));
    expect(sink.calls).toEqual([["replace", "a", "b"]]);
  });

  test("a first connection to an empty fleet clears the fleet", () => {
    reader.connected(beginning(0), false);
    expect(sink.calls).toEqual([["replace"]]);
  });

  test("a resumed connection keeps what is known", () => {
    reader.connected(beginning(0), true);
    reader.changed(about("missed"));
    reader.flush();
    expect(sink.calls).toEqual([["apply", "missed"]]);
  });

  test("a reset starts a new snapshot, in the middle of another too", () => {
    reader.connected(beginning(2), false);
    reader.snapshot(about("stale"));
    reader.reset(beginning(1));
    reader.snapshot(about("fresh"));
    expect(sink.calls).toEqual([["replace", "fresh"]]);
  });

  test("a change during a snapshot is applied after it", () => {
    reader.connected(beginning(1), false);
    reader.changed(about("new"));
    reader.flush();
    reader.snapshot(about("a"));
    reader.flush();
    expect(sink.calls).toEqual([
      ["replace", "a"],
      ["apply", "new"],
    ]);
  });

  test("a burst of changes is handed over at once", () => {
    reader.changed(about("a"));
    reader.changed(about("b"));
    reader.flush();
    reader.flush();
    expect(sink.calls).toEqual([["apply", "a", "b"]]);
  });

  test("samples of a burst are handed over at once, after the workers they are about", () => {
    reader.connected(beginning(1), false);
    reader.samples(JSON.stringify({ events: [{ worker_id: "a" }] }));
    reader.flush();
    expect(sink.calls).toEqual([]);
    reader.snapshot(about("a"));
    reader.samples(JSON.stringify({ events: [{ worker_id: "b" }, { worker_id: "a" }] }));
    reader.changed(about("b"));
    reader.flush();
    expect(sink.calls).toEqual([
      ["replace", "a"],
      ["apply", "b"],
      ["samples", "a", "b", "a"],
    ]);
  });

  test("a burst of changes of lablet sessions is handed over at once, during a snapshot too", () => {
    reader.connected(beginning(1), false);
    reader.sessionChanged(JSON.stringify({ session: lablet({ id: "s1" }) }));
    reader.sessionChanged(JSON.stringify({ session: lablet({ id: "s2" }) }));
    reader.flush();
    expect(sink.calls).toEqual([["sessions", "s1", "s2"]]);
  });

  test("a snapshot of lablet sessions replaces them once it is complete, and a change in it is applied after", () => {
    reader.connected(beginning(0, 3), false);
    reader.sessionsSnapshot(lablets("s1", "s2"));
    reader.sessionChanged(JSON.stringify({ session: lablet({ id: "s4" }) }));
    reader.flush();
    expect(reader.isMidSnapshot).toBe(true);
    expect(sink.calls).toEqual([["replace"]]);
    reader.sessionsSnapshot(lablets("s3"));
    reader.flush();
    expect(sink.calls).toEqual([["replace"], ["replace sessions", "s1", "s2", "s3"], ["sessions", "s4"]]);
  });

  test("a resumed connection without a snapshot keeps the lablet sessions", () => {
    reader.connected(beginning(1, 1), false);
    expect(sink.begun).toBe(1);
    reader.connected(beginning(0), true);
    expect(sink.begun).toBe(1);
    reader.reset(beginning(0));
    expect(sink.begun).toBe(2);
  });

  test("lab events are handed over at once, and a lab that changes changes the list of all labs", () => {
    reader.labChange(JSON.stringify({ lab_id: "l1" }));
    reader.labStatus(JSON.stringify({ lab_id: "l2" }));
    expect(sink.calls).toEqual([["lab change", "l1"], ["lab status", "l2"], ["labs changed"]]);
  });

  test("an incomplete snapshot is dropped with its connection", () => {
    reader.connected(beginning(2), false);
    reader.snapshot(about("a"));
    expect(reader.isMidSnapshot).toBe(true);
    reader.abandonSnapshot();
    reader.connected(beginning(1), false);
    reader.snapshot(about("b"));
    expect(sink.calls).toEqual([["replace", "b"]]);
  });
});
