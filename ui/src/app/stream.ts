/** Keeps the event stream connected and publishes its connection state. */

import { computed, signal } from "@preact/signals";
import { HEARTBEAT_MS, SESSION_EVENTS, STREAM_EVENT, WORKER_EVENTS } from "../generated/rules";
import { clockSkew, now } from "../kit/clock";
import { EventReader, type FleetSink, LAB_EVENTS, SUBSCRIBED_TYPES } from "./events";

export type Connection = "connecting" | "live" | "offline";

export const connection = signal<Connection>("connecting");

/** When the control plane was last heard, by its own clock; null before the first event. */
const heardAt = signal<number | null>(null);

/** What is older than this is shown as outdated while there is no connection. */
const STALE_MS = 20_000;

/** The time that the page shows, while it is not the present one; null while it is. */
export const staleSince = computed(() => {
  const at = heardAt.value;
  return connection.value !== "live" && at !== null && now.value - at > STALE_MS ? at : null;
});

/** Events that arrive within this time are rendered together. */
const FLUSH_MS = 16;
/** After two missed heartbeats the connection counts as lost. */
const SILENCE_MS = 2.5 * HEARTBEAT_MS;
/** A connection without an answer is given up after this time: its other end may be gone without a word. */
const CONNECT_MS = 20_000;
/** How often the two are judged, by the time of day: timers stand still while a computer sleeps. */
const CHECK_MS = 1_000;
/** A reconnect that takes longer counts as offline. */
const OFFLINE_AFTER_MS = 8_000;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 30_000;

export interface StreamOwner extends FleetSink {
  /** The browser closed the stream: check whether the session is still valid, and refetch. */
  recover(): Promise<void>;
}

export class EventStream {
  readonly #owner: StreamOwner;
  readonly #reader: EventReader;
  #source: EventSource | null = null;
  #failures = 0;
  #flushTimer = 0;
  #retryTimer = 0;
  #checkTimer = 0;
  #offlineTimer = 0;
  /** When the next event is due, at the latest. */
  #dueAt = 0;

  constructor(owner: StreamOwner) {
    this.#owner = owner;
    this.#reader = new EventReader(owner);
  }

  open(): void {
    this.#release();
    const source = new EventSource(`/api/events/stream?batch=true&event_types=${SUBSCRIBED_TYPES.join(",")}`);
    this.#source = source;
    let wasConnected = false;
    this.#dueAt = Date.now() + CONNECT_MS;
    this.#checkTimer = window.setInterval(() => this.#check(), CHECK_MS);
    this.#awaitConnection();

    this.#on(source, STREAM_EVENT.CONNECTED, (data) => {
      this.#markLive();
      setClock(data);
      this.#reader.connected(data, wasConnected);
      wasConnected = true;
    });
    this.#on(source, STREAM_EVENT.RESET, (data) => {
      // Also the first event of a server that cannot resume from the last event id.
      this.#markLive();
      this.#reader.reset(data);
      wasConnected = true;
    });
    this.#on(source, STREAM_EVENT.WORKER_SNAPSHOT, (data) => this.#reader.snapshot(data));
    for (const type of WORKER_EVENTS) this.#on(source, type, (data) => this.#reader.changed(data));
    this.#on(source, STREAM_EVENT.SESSIONS_SNAPSHOT, (data) => this.#reader.sessionsSnapshot(data));
    for (const type of SESSION_EVENTS) this.#on(source, type, (data) => this.#reader.sessionChanged(data));
    this.#on(source, STREAM_EVENT.METRICS_BATCH, (data) => this.#reader.samples(data));
    this.#on(source, STREAM_EVENT.LAB_STATE_CHANGE, (data) => this.#reader.labChange(data));
    this.#on(source, STREAM_EVENT.LAB_STATUS_UPDATED, (data) => this.#reader.labStatus(data));
    for (const type of LAB_EVENTS) this.#on(source, type, () => this.#reader.labsChanged());
    this.#on(source, STREAM_EVENT.HEARTBEAT, setClock);
    this.#on(source, STREAM_EVENT.SHUTDOWN, () => this.#awaitConnection());
    this.#on(source, STREAM_EVENT.SESSION_EXPIRED, () => void this.#owner.recover());
    source.onerror = () => this.#handleError(source);
  }

  close(): void {
    this.#release();
    this.#failures = 0;
    connection.value = "connecting";
    heardAt.value = null;
  }

  /** Reconnect at once: the user asked for it, or the browser is online again. */
  retryNow(): void {
    if (this.#source !== null || this.#retryTimer !== 0) this.open();
  }

  /** The user looks at the page again, perhaps after hours: do not wait for a timer. */
  wake(): void {
    if (this.#retryTimer !== 0) this.open();
    else if (this.#source !== null) this.#check();
  }

  #on(source: EventSource, type: string, handle: (data: string) => void): void {
    source.addEventListener(type, (event: MessageEvent<string>) => {
      this.#dueAt = Date.now() + SILENCE_MS;
      heardAt.value = Date.now() + clockSkew.peek();
      handle(event.data);
      if (this.#flushTimer === 0) this.#flushTimer = window.setTimeout(() => this.#flush(), FLUSH_MS);
    });
  }

  #flush(): void {
    this.#flushTimer = 0;
    this.#reader.flush();
  }

  #markLive(): void {
    window.clearTimeout(this.#offlineTimer);
    this.#failures = 0;
    connection.value = "live";
  }

  #handleError(source: EventSource): void {
    // Resuming after half a snapshot would miss the other half: reconnect for a new one.
    if (source.readyState === EventSource.CLOSED || this.#reader.isMidSnapshot) this.#retryLater();
    else this.#awaitConnection();
  }

  #awaitConnection(): void {
    if (connection.value === "live") connection.value = "connecting";
    window.clearTimeout(this.#offlineTimer);
    this.#offlineTimer = window.setTimeout(() => {
      connection.value = "offline";
    }, OFFLINE_AFTER_MS);
  }

  #check(): void {
    if (Date.now() > this.#dueAt) this.#retryLater();
  }

  #retryLater(): void {
    this.#release();
    this.#failures += 1;
    connection.value = this.#failures > 1 ? "offline" : "connecting";
    const delay = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** (this.#failures - 1));
    this.#retryTimer = window.setTimeout(() => {
      this.open();
      void this.#owner.recover();
    }, delay);
  }

  #release(): void {
    this.#source?.close();
    this.#source = null;
    this.#reader.flush();
    this.#reader.abandonSnapshot();
    for (const timer of [this.#flushTimer, this.#retryTimer, this.#offlineTimer]) window.clearTimeout(timer);
    window.clearInterval(this.#checkTimer);
    this.#flushTimer = 0;
    this.#retryTimer = 0;
  }
}

function setClock(data: string): void {
  const { server_time } = JSON.parse(data) as { readonly server_time: string };
  clockSkew.value = Date.parse(server_time) - Date.now();
}
