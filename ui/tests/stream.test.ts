import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connection, EventStream, staleSince } from "../src/app/stream";
import { clockSkew, now } from "../src/kit/clock";

const HOUR = 3_600_000;

class FakeSource extends EventTarget {
  static readonly CLOSED = 2;
  static opened: FakeSource[] = [];
  readyState = 1;
  onerror: (() => void) | null = null;

  constructor() {
    super();
    FakeSource.opened.push(this);
  }

  close(): void {
    this.readyState = FakeSource.CLOSED;
  }

  connect(): void {
    const data = JSON.stringify({ server_time: new Date().toISOString(), workers: 0, sessions: 0 });
    this.dispatchEvent(new MessageEvent("connected", { data }));
  }
}

describe("the event stream", () => {
  const recover = vi.fn(async () => undefined);
  const ignore = () => undefined;
  let stream: EventStream;

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("EventSource", FakeSource);
    FakeSource.opened = [];
    recover.mockClear();
    stream = new EventStream({
      applyWorkers: ignore,
      replaceWorkers: ignore,
      applySamples: ignore,
      applyLabChange: ignore,
      applyLabStatus: ignore,
      labsChanged: ignore,
      beginSessions: ignore,
      replaceSessions: ignore,
      applySessions: ignore,
      recover,
    });
    stream.open();
  });

  afterEach(() => {
    stream.close();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  /** Time that passes without a timer: the computer sleeps. */
  function sleep(ms: number): void {
    vi.setSystemTime(Date.now() + ms);
    now.value = Date.now() + clockSkew.peek();
  }

  function last(): FakeSource {
    return FakeSource.opened.at(-1) as FakeSource;
  }

  test("is opened anew after hours of sleep, though its connection reports no error", () => {
    last().connect();
    expect([connection.value, staleSince.value]).toEqual(["live", null]);
    const heard = Date.now();
    sleep(3 * HOUR);
    vi.advanceTimersByTime(1_000);
    expect(connection.value).toBe("connecting");
    expect(staleSince.value).toBe(heard);
    vi.advanceTimersByTime(1_000);
    expect(FakeSource.opened).toHaveLength(2);
    expect(recover).toHaveBeenCalledTimes(1);
    last().connect();
    expect([connection.value, staleSince.value]).toEqual(["live", null]);
  });

  test("does not wait for a retry when the user looks again", () => {
    last().connect();
    sleep(3 * HOUR);
    stream.wake();
    stream.wake();
    expect(FakeSource.opened).toHaveLength(2);
  });

  test("is left alone by a user who looks while it is live", () => {
    last().connect();
    stream.wake();
    expect(FakeSource.opened).toHaveLength(1);
  });

  test("gives up a connection that never answers", () => {
    vi.advanceTimersByTime(22_000);
    expect(FakeSource.opened).toHaveLength(2);
    vi.advanceTimersByTime(23_000);
    expect(FakeSource.opened).toHaveLength(3);
    expect(connection.value).toBe("offline");
  });
});
