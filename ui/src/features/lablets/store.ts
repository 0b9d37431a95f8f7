/**
 * The lablet sessions as the page knows them. Each has a signal of its own, so that a change of one renders one
 * row. Answers and events arrive in any order: versions decide.
 */

import { batch, computed, type Signal, signal } from "@preact/signals";
import * as api from "../../app/lablet-api";
import { announcement, entries as workers } from "../../app/store";
import type { LabletSessionView } from "../../generated/api";
import { now } from "../../kit/clock";
import {
  countTiles,
  type Filter,
  inOrder,
  isEnded,
  isShown,
  NO_FILTER,
  sessionInfo,
  type TileId,
  titleOf,
} from "./model";

export interface SessionEntry {
  readonly id: string;
  readonly session: Signal<LabletSessionView>;
  /** The number of the change that brought it: what came while a list was fetched is newer than the list. */
  change: number;
}

export const sessions = signal<ReadonlyMap<string, SessionEntry>>(new Map());
/** Whether the whole list has been fetched once. */
export const areLoaded = signal(false);
/** Why the list could not be fetched. */
export const loadProblem = signal<string | null>(null);
/** Counts changes of status, worker or time: what is derived from them is then fetched again. */
export const sessionChanges = signal(0);

/** More ended sessions than this are not kept; a list of all of them is a page of its own. */
const MAX_ENDED = 2_000;

let changes = 0;

/** Apply the sessions that are newer than the known ones. */
export function applySessions(received: readonly LabletSessionView[]): void {
  const next = new Map(sessions.peek());
  changes += 1;
  batch(() => {
    const changed = received.filter((session) => merge(session, next));
    if (next.size > sessions.peek().size) {
      dropOldEnded(next);
      sessions.value = next;
    }
    if (received.length > 0) sessionChanges.value += 1;
    if (changed.length > 0) announce(changed);
  });
}

/** Apply one session; returns whether it was known and has another status now. */
function merge(session: LabletSessionView, into: Map<string, SessionEntry>): boolean {
  const entry = into.get(session.id);
  if (entry === undefined) {
    into.set(session.id, newEntry(session));
    return false;
  }
  const before = entry.session.peek();
  if (session.version <= before.version) return false;
  entry.session.value = session;
  entry.change = changes;
  return session.status !== before.status;
}

/**
 * Replace the sessions that have not ended by these; what has arrived since they were requested stays. Sessions
 * that have ended stay too: lists leave the archived ones out, and they never change again.
 */
export function replaceSessions(received: readonly LabletSessionView[], requestedAt: number): void {
  const known = sessions.peek();
  const isNewer = (entry: SessionEntry) => entry.change > requestedAt;
  const stays = (entry: SessionEntry) => isNewer(entry) || isEnded(entry.session.peek());
  changes += 1;
  batch(() => {
    const next = new Map([...known].filter(([, entry]) => stays(entry)));
    for (const session of received) {
      const entry = known.get(session.id) ?? newEntry(session);
      // A row keeps its entry, so that it is not rendered again.
      if (!isNewer(entry) || session.version > entry.session.peek().version) entry.session.value = session;
      next.set(session.id, entry);
    }
    sessions.value = next;
    areLoaded.value = true;
    loadProblem.value = null;
    sessionChanges.value += 1;
  });
}

/** The number to pass to `replaceSessions` with an answer that is requested now. */
export function changeNumber(): number {
  return changes;
}

let snapshotBeganAt = 0;

/** The stream begins to send all sessions that are not archived. */
export function beginSessions(): void {
  snapshotBeganAt = changes;
}

export function endSessions(received: readonly LabletSessionView[]): void {
  replaceSessions(received, snapshotBeganAt);
}

function newEntry(session: LabletSessionView): SessionEntry {
  return { id: session.id, session: signal(session), change: changes };
}

function dropOldEnded(map: Map<string, SessionEntry>): void {
  const ended = [...map.values()].filter((entry) => isEnded(entry.session.peek()));
  const endedAt = (entry: SessionEntry) => entry.session.peek().ended_at ?? "";
  ended.sort((a, b) => endedAt(b).localeCompare(endedAt(a)));
  for (const entry of ended.slice(MAX_ENDED)) map.delete(entry.id);
}

const MAX_ANNOUNCED = 3;

function announce(changed: readonly LabletSessionView[]): void {
  announcement.value =
    changed.length > MAX_ANNOUNCED
      ? `${changed.length} lablet sessions changed status`
      : changed
          .map((session) => `${titleOf(session)} is ${sessionInfo(session.status).label.toLowerCase()}`)
          .join(", ");
}

// Loading.

let isWanted = false;
let isLoading = false;

/** Fetch what the stream has not brought; a page that lists sessions calls it. */
export function wantSessions(): void {
  if (isWanted) return;
  isWanted = true;
  void loadSessions();
}

export async function loadSessions(): Promise<void> {
  if (isLoading) return;
  isLoading = true;
  const requestedAt = changeNumber();
  try {
    if (!areLoaded.peek()) replaceSessions(await api.listLiveSessions(), requestedAt);
    applySessions(await api.listEndedSessions());
    loadProblem.value = null;
  } catch (error) {
    loadProblem.value = error instanceof Error ? error.message : String(error);
  } finally {
    isLoading = false;
  }
}

export function clearSessions(): void {
  isWanted = false;
  changes += 1;
  batch(() => {
    sessions.value = new Map();
    areLoaded.value = false;
    loadProblem.value = null;
    selection.value = new Set();
  });
}

// The list as the user wants it.

export const filter = signal<Filter>(NO_FILTER);

export function changeFilter(part: Partial<Filter>): void {
  filter.value = { ...filter.peek(), ...part };
}

export function workerName(id: string | null): string {
  return id === null ? "" : (workers.value.get(id)?.worker.value.name ?? id);
}

/** A time that ticks by the minute: lists that depend on it are not computed every second. */
export const minute = computed(() => Math.floor(now.value / 60_000) * 60_000);

export const allSessions = computed(() => [...sessions.value.values()].map((entry) => entry.session.value));

export const tileCounts = computed<ReadonlyMap<TileId, number>>(() => countTiles(allSessions.value, minute.value));

let lastRows: readonly SessionEntry[] = [];

/** The same array as before unless a row was added, removed or moved: only then does the list render. */
export const rows = computed<readonly SessionEntry[]>(() => {
  const wanted = filter.value;
  const shown = [...sessions.value.values()].filter(({ session }) =>
    isShown(wanted, session.value, workerName(session.value.worker_id), minute.value),
  );
  const next = inOrder(shown, ({ session }) => session.value, wanted.sort, workerName);
  const isSame = next.length === lastRows.length && next.every((entry, index) => entry === lastRows[index]);
  if (!isSame) lastRows = next;
  return lastRows;
});

// The selection.

export const selection = signal<ReadonlySet<string>>(new Set());

export function toggleSelected(id: string): void {
  const next = new Set(selection.peek());
  if (!next.delete(id)) next.add(id);
  selection.value = next;
}

/** Select exactly the listed sessions, or none of them. */
export function selectListed(isSelected: boolean): void {
  selection.value = new Set(isSelected ? rows.peek().map(({ id }) => id) : []);
}

export function clearSelection(): void {
  selection.value = new Set();
}

/** The selected sessions that the list shows: nothing is done to a session that is not visible. */
export const selectedSessions = computed(() =>
  rows.value.filter(({ id }) => selection.value.has(id)).map(({ session }) => session.value),
);
