/** The rules of the dashboard about lablet sessions that need no browser. */

import { ownerName } from "../../app/people";
import type { LabletSessionView, SessionStatus } from "../../generated/api";
import { type Color, SESSION_COLOR, SESSION_ENDED, SESSION_MEANING, SESSION_STATUSES } from "../../generated/rules";
import { formatAgo, formatCount, formatDuration, formatRemaining, formatRemainingShort } from "../../kit/format";

/** Where a session is on its way, as far as the list distinguishes it. */
export type Phase = "booked" | "waiting" | "starting" | "ready" | "running" | "stopping" | "ended";

const PHASE_OF: Readonly<Record<SessionStatus, Phase>> = {
  pending: "booked",
  pending_scheduling: "waiting",
  scheduled: "starting",
  instantiating: "starting",
  ready: "ready",
  running: "running",
  collecting: "running",
  grading: "running",
  stopping: "stopping",
  archived: "ended",
  terminated: "ended",
  expired: "ended",
  failed: "ended",
};

const LABELS: Readonly<Record<SessionStatus, string>> = {
  pending: "Booked",
  pending_scheduling: "Waiting",
  scheduled: "Scheduled",
  instantiating: "Starting",
  ready: "Ready",
  running: "Running",
  collecting: "Collecting",
  grading: "Grading",
  stopping: "Ending",
  archived: "Completed",
  terminated: "Cancelled",
  expired: "Expired",
  failed: "Failed",
};

export interface SessionInfo {
  readonly label: string;
  readonly color: Color;
  readonly meaning: string;
  readonly phase: Phase;
  /** On its way to another status: the badge breathes. */
  readonly moving: boolean;
}

const MOVING: readonly Phase[] = ["waiting", "starting", "stopping"];

/** A status of a newer server is shown by its name. */
export function sessionInfo(status: SessionStatus): SessionInfo {
  const phase = PHASE_OF[status] ?? "running";
  return {
    label: LABELS[status] ?? status,
    color: SESSION_COLOR[status] ?? "purple",
    meaning: SESSION_MEANING[status] ?? "",
    phase,
    moving: MOVING.includes(phase),
  };
}

export function isEnded({ status }: LabletSessionView): boolean {
  return SESSION_ENDED.includes(status);
}

/** Whether its end is requested and not reached. */
export function isEnding(session: LabletSessionView): boolean {
  return !isEnded(session) && (session.desired_status === "terminated" || session.status === "stopping");
}

export function waitsForWorker({ status }: LabletSessionView): boolean {
  return status === "pending" || status === "pending_scheduling";
}

const MINUTE = 60_000;

/** Whether its end is near: the server has warned of it, or it is being removed. */
export function endsSoon(session: LabletSessionView): boolean {
  if (isEnded(session) || waitsForWorker(session)) return false;
  return session.status === "stopping" || session.ending_soon_minutes !== null;
}

/** The sessions of this owner that were warned of and are in use, the next to end first. */
export function endingFirst(sessions: Iterable<LabletSessionView>, owner: string): readonly LabletSessionView[] {
  return [...sessions]
    .filter((session) => session.owner_id === owner && endsSoon(session) && canEnd(session))
    .sort((a, b) => compareText(a.ends_at ?? "", b.ends_at ?? "") || compareTies(a, b));
}

/** Names one warning of a session: each is given once for the end that it announces. */
export function warningOf({ id, ends_at, ending_soon_minutes }: LabletSessionView): string {
  return `${id} ${ends_at} ${ending_soon_minutes}`;
}

function failedToday(session: LabletSessionView, now: number): boolean {
  if (session.status !== "failed" || session.ended_at === null) return false;
  return new Date(session.ended_at).toDateString() === new Date(now).toDateString();
}

export type TileId = "booked" | "waiting" | "starting" | "ready" | "running" | "ending" | "failed";

export interface Tile {
  readonly id: TileId;
  readonly label: string;
  readonly color: Color;
}

export const TILES: readonly Tile[] = [
  { id: "booked", label: "Booked", color: "grey" },
  { id: "waiting", label: "Waiting", color: "orange" },
  { id: "starting", label: "Starting", color: "blue" },
  { id: "ready", label: "Ready", color: "green" },
  { id: "running", label: "Running", color: "green" },
  { id: "ending", label: "Ending soon", color: "purple" },
  { id: "failed", label: "Failed today", color: "red" },
];

/** Whether the tile counts the session. A session that runs and ends soon is counted by two tiles. */
export function isInTile(tile: TileId, session: LabletSessionView, now: number): boolean {
  if (tile === "ending") return endsSoon(session);
  if (tile === "failed") return failedToday(session, now);
  return sessionInfo(session.status).phase === tile;
}

export function countTiles(sessions: Iterable<LabletSessionView>, now: number): ReadonlyMap<TileId, number> {
  const counts = new Map<TileId, number>(TILES.map(({ id }) => [id, 0]));
  for (const session of sessions) {
    for (const { id } of TILES) if (isInTile(id, session, now)) counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

// The row.

/** Why the session is where it is, where that needs words; otherwise "". */
export function reasonOf(session: LabletSessionView): string {
  if (isEnding(session)) return endingReason(session);
  if (waitsForWorker(session)) return session.waits_for?.text ?? sessionInfo(session.status).meaning;
  return session.status === "failed" || session.status === "expired" ? session.status_reason : "";
}

function endingReason({ end_asked_by, status_reason }: LabletSessionView): string {
  return end_asked_by === null ? status_reason : `Its end was requested by ${end_asked_by}.`;
}

/** The definition and its version, as users say it. */
export function definitionOf({ definition_name, definition_version }: LabletSessionView): string {
  return `${definition_name} ${definition_version}`;
}

/** Its class and its seat there; null for a session of its own. */
export function classOf({ batch }: LabletSessionView): string | null {
  if (batch === null) return null;
  return `${batch.name === "" ? "Class" : batch.name} · seat ${batch.index + 1} of ${batch.size}`;
}

export function shortId(id: string): string {
  return id.slice(0, 8);
}

/** What a user calls the session, where a sentence names it. */
export function titleOf(session: LabletSessionView): string {
  return `${definitionOf(session)} of ${ownerName(session.owner_id)}`;
}

/** The time until it starts or ends: "starts in 12 min", "48 min left", "waiting 7 min", "ended 3 min ago". */
export function countdown(session: LabletSessionView, now: number): string {
  if (isEnded(session)) return session.ended_at === null ? "ended" : `ended ${formatAgo(at(session.ended_at), now)}`;
  if (session.status === "stopping") return "ending";
  const start = session.timeslot === null ? null : at(session.timeslot.start);
  const hasStarted = session.status === "running" || session.status === "collecting" || session.status === "grading";
  if (start !== null && !hasStarted && start > now) return `starts in ${formatRemainingShort(start - now)}`;
  if (start !== null && waitsForWorker(session)) return `late by ${formatRemaining(now - start)}`;
  if (waitsForWorker(session)) return `waiting ${formatDuration(now - at(session.created_at))}`;
  if (session.ends_at === null) return "starting";
  const left = at(session.ends_at) - now;
  return left > 0 ? `${formatRemaining(left)} left` : "time is over";
}

/** "Ends in 9 min". */
export function endingText({ status, ends_at }: LabletSessionView, now: number): string {
  const left = ends_at === null ? 0 : at(ends_at) - now;
  if (status === "stopping") return "Its lab is being removed";
  return left > 0 ? `Ends in ${formatRemaining(left)}` : "Its time is over";
}

function at(moment: string): number {
  return Date.parse(moment);
}

// The list.

export type SortColumn = "session" | "status" | "owner" | "worker" | "slot" | "ends";

export interface Sort {
  readonly column: SortColumn;
  readonly descending: boolean;
}

const FIRST: Sort = { column: "slot", descending: false };

/** What the user chose to see; the URL has it, so that a link leads to the same list. */
export interface Filter {
  /** A tile, a status, all sessions, or only those that have not ended. */
  readonly show: TileId | SessionStatus | "all" | "live";
  readonly text: string;
  readonly owner: string;
  readonly definition: string;
  /** The id of a class. */
  readonly batch: string;
  readonly sort: Sort;
}

export const NO_FILTER: Filter = { show: "live", text: "", owner: "", definition: "", batch: "", sort: FIRST };

const SORT_COLUMNS: readonly SortColumn[] = ["session", "status", "owner", "worker", "slot", "ends"];
/** "running" is a tile and a status: the tile has its own name in the URL. */
const TILE_PREFIX = "is-";

export function isTile(show: Filter["show"]): show is TileId {
  return TILES.some(({ id }) => id === show);
}

export function filterOf(query: URLSearchParams): Filter {
  const sort = query.get("sort") ?? "";
  const column = SORT_COLUMNS.find((candidate) => candidate === sort.replace(/^-/, ""));
  return {
    show: showOf(query.get("show") ?? ""),
    text: query.get("q") ?? "",
    owner: query.get("owner") ?? "",
    definition: query.get("definition") ?? "",
    batch: query.get("class") ?? "",
    sort: column === undefined ? FIRST : { column, descending: sort.startsWith("-") },
  };
}

function showOf(text: string): Filter["show"] {
  if (text === "all") return "all";
  const tile = TILES.find(({ id }) => `${TILE_PREFIX}${id}` === text);
  return tile?.id ?? SESSION_STATUSES.find((status) => status === text) ?? "live";
}

export function queryOf(filter: Filter): string {
  const query = new URLSearchParams();
  if (isTile(filter.show)) query.set("show", TILE_PREFIX + filter.show);
  else if (filter.show !== "live") query.set("show", filter.show);
  if (filter.text.trim() !== "") query.set("q", filter.text);
  if (filter.owner !== "") query.set("owner", filter.owner);
  if (filter.definition !== "") query.set("definition", filter.definition);
  if (filter.batch !== "") query.set("class", filter.batch);
  const { column, descending } = filter.sort;
  if (column !== FIRST.column || descending) query.set("sort", `${descending ? "-" : ""}${column}`);
  return query.toString();
}

export function isFiltered(filter: Filter): boolean {
  return queryOf({ ...filter, sort: FIRST }) !== "";
}

export function isShown(filter: Filter, session: LabletSessionView, workerName: string, now: number): boolean {
  if (!isOfChoice(filter.show, session, now)) return false;
  if (filter.owner !== "" && session.owner_id !== filter.owner) return false;
  if (filter.definition !== "" && session.definition_name !== filter.definition) return false;
  if (filter.batch !== "" && session.batch?.id !== filter.batch) return false;
  return matchesText(session, workerName, filter.text);
}

function isOfChoice(show: Filter["show"], session: LabletSessionView, now: number): boolean {
  if (show === "all") return true;
  if (show === "live") return !isEnded(session);
  return isTile(show) ? isInTile(show, session, now) : session.status === show;
}

function matchesText(session: LabletSessionView, workerName: string, text: string): boolean {
  const needle = text.trim().toLowerCase();
  if (needle === "") return true;
  const haystack = [
    session.owner_id,
    ownerName(session.owner_id),
    definitionOf(session),
    session.batch?.name,
    session.id,
    session.reservation_id,
    workerName,
  ];
  return haystack.some((value) => value?.toLowerCase().includes(needle) ?? false);
}

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function sortKey(session: LabletSessionView, column: SortColumn, workerName: string): string {
  switch (column) {
    case "session":
      return definitionOf(session);
    case "status":
      return String(SESSION_STATUSES.indexOf(session.status)).padStart(2, "0");
    case "owner":
      return ownerName(session.owner_id);
    case "worker":
      return workerName;
    case "slot":
      return session.timeslot?.start ?? session.created_at;
    case "ends":
      // No end yet: after all that have one.
      return session.ended_at ?? session.ends_at ?? "9999";
  }
}

interface Keyed<T> {
  readonly item: T;
  readonly session: LabletSessionView;
  readonly key: string;
}

/** Names are ordered as users read them, times and statuses by their text, which is much faster. */
const IS_NAME: Readonly<Record<SortColumn, boolean>> = {
  session: true,
  owner: true,
  worker: true,
  status: false,
  slot: false,
  ends: false,
};

/** Ties are ordered by creation, the seat of a class and then by id, so that the order of rows is stable. */
export function inOrder<T>(
  items: readonly T[],
  sessionOf: (item: T) => LabletSessionView,
  sort: Sort,
  nameOf: (workerId: string | null) => string,
): T[] {
  const direction = sort.descending ? -1 : 1;
  const compare = IS_NAME[sort.column] ? natural.compare : compareText;
  const keyed = items.map((item): Keyed<T> => {
    const session = sessionOf(item);
    return { item, session, key: sortKey(session, sort.column, nameOf(session.worker_id)) };
  });
  keyed.sort((a, b) => direction * compare(a.key, b.key) || compareTies(a.session, b.session));
  return keyed.map(({ item }) => item);
}

function compareText(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function compareTies(a: LabletSessionView, b: LabletSessionView): number {
  return (
    compareText(a.created_at, b.created_at) || (a.batch?.index ?? 0) - (b.batch?.index ?? 0) || compareText(a.id, b.id)
  );
}

export interface Choice {
  readonly value: string;
  readonly label: string;
}

/** The owners, definitions or classes that the known sessions have, each once and in order. */
export function choicesOf(
  sessions: Iterable<LabletSessionView>,
  kind: "owner" | "definition" | "batch",
): readonly Choice[] {
  const labels = new Map<string, string>();
  for (const session of sessions) {
    if (kind === "owner") labels.set(session.owner_id, ownerName(session.owner_id));
    else if (kind === "definition") labels.set(session.definition_name, session.definition_name);
    else if (session.batch !== null) labels.set(session.batch.id, session.batch.name || shortId(session.batch.id));
  }
  return [...labels].map(([value, label]) => ({ value, label })).sort((a, b) => natural.compare(a.label, b.label));
}

// Requests for several sessions.

export function canEnd(session: LabletSessionView): boolean {
  return !isEnded(session) && session.desired_status !== "terminated";
}

export function canExtend(session: LabletSessionView): boolean {
  return canEnd(session) && session.timeslot !== null && session.status !== "stopping";
}

/** Whether its lab is being removed and is not proven gone. */
export function canAbandon({ status, cleanup }: LabletSessionView): boolean {
  return status === "stopping" && (cleanup.proof ?? null) === null;
}

export function canRetry({ status }: LabletSessionView): boolean {
  return status === "failed";
}

/** Why the session cannot be extended, or null if it can. */
export function extendDisabledReason(session: LabletSessionView): string | null {
  if (canExtend(session)) return null;
  return session.timeslot === null ? "Only a booked session has a timeslot to extend." : "The session ends.";
}

/** What the end of these sessions does: "2 running labs are deleted, 1 session that waits is cancelled." */
export function endSummary(sessions: readonly LabletSessionView[]): string {
  const waiting = sessions.filter(waitsForWorker).length;
  const labs = sessions.filter(({ status }) => !["pending", "pending_scheduling", "scheduled"].includes(status)).length;
  const placed = sessions.length - waiting - labs;
  const parts = [
    labs > 0 ? `${formatCount(labs, "lab")} ${labs === 1 ? "is" : "are"} stopped and deleted` : null,
    placed > 0 ? `${formatCount(placed, "place")} on a worker ${placed === 1 ? "is" : "are"} released` : null,
    waiting > 0 ? `${formatCount(waiting, "session")} that ${waiting === 1 ? "waits is" : "wait are"} cancelled` : null,
  ];
  return `${parts.filter((part) => part !== null).join(", ")}.`;
}

/** The later end; null if the session has no timeslot. */
export function extendedEnd({ timeslot }: LabletSessionView, minutes: number): string | null {
  return timeslot === null ? null : new Date(at(timeslot.end) + minutes * MINUTE).toISOString();
}

/** Why the definition does not allow so long a timeslot, or null. An operator may exceed it. */
export function exceedsDefinition(session: LabletSessionView, minutes: number): boolean {
  if (session.timeslot === null) return false;
  const length = at(session.timeslot.end) - at(session.timeslot.start) + minutes * MINUTE;
  return length > session.max_duration_minutes * MINUTE;
}

// The session's page.

export interface StripStep {
  readonly id: Phase;
  readonly label: string;
  /** When it was first reached in its last attempt; null if it was not. */
  readonly at: string | null;
  readonly is: "past" | "present" | "future" | "skipped";
}

const STRIP: readonly Phase[] = ["booked", "waiting", "starting", "ready", "running", "stopping", "ended"];
const STRIP_LABEL: Readonly<Record<Phase, string>> = {
  booked: "Booked",
  waiting: "Waiting",
  starting: "Starting",
  ready: "Ready",
  running: "Running",
  stopping: "Ending",
  ended: "Ended",
};

interface Reached {
  readonly to: SessionStatus;
  readonly at: string;
}

/** The steps of a session's life with the time of each; a session that was placed again begins anew. */
export function stripOf(session: LabletSessionView, history: readonly Reached[]): readonly StripStep[] {
  const present = STRIP.indexOf(sessionInfo(session.status).phase);
  const times = new Map<Phase, string>();
  for (const { to, at: moment } of history) {
    const phase = sessionInfo(to).phase;
    if (phase === "waiting") for (const later of STRIP.slice(2)) times.delete(later);
    if (!times.has(phase)) times.set(phase, moment);
  }
  const steps = STRIP.map((id, index): StripStep => {
    const reached = times.get(id) ?? null;
    const label = id === "ended" && index === present ? sessionInfo(session.status).label : STRIP_LABEL[id];
    if (index === present) return { id, label, at: reached ?? session.updated_at, is: "present" };
    if (index > present) return { id, label, at: null, is: "future" };
    return { id, label, at: reached, is: reached === null ? "skipped" : "past" };
  });
  // Only a session with a timeslot is booked.
  return steps.filter(({ id, is }) => id !== "booked" || is !== "skipped");
}

/** How far the timeslot has passed, from 0 to 1. */
export function slotProgress(timeslot: { readonly start: string; readonly end: string }, now: number): number {
  const start = at(timeslot.start);
  return Math.min(1, Math.max(0, (now - start) / (at(timeslot.end) - start)));
}
