/** When a worker is paused, what prevents it, and how long a hold lasts: rules without a browser. */

import type { Hold, WorkerView } from "../../generated/api";
import { formatCount, formatRemaining, formatRemainingShort, formatUntil } from "../../kit/format";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** A pause that is due within this time shows in the fleet. */
const NEAR_MS = 15 * MINUTE;

export const NOT_PAUSABLE = "Only a running worker whose desired status is running can be paused.";

export function canBePaused(worker: WorkerView): boolean {
  return worker.status === "running" && worker.desired_status === "running";
}

/** The hold that is in force now, or null. */
export function activeHold(worker: WorkerView, now: number): Hold | null {
  return worker.hold !== null && Date.parse(worker.hold.until) > now ? worker.hold : null;
}

/** What the record alone does not contain. */
export interface PauseForecast {
  /** When a pause is due; null if none is. */
  readonly dueAt: string | null;
  /** Auto-pause is off for all workers. */
  readonly isOffForAll: boolean;
}

/** Whether and when the worker is paused, in one sentence that names the first thing that prevents it. */
export function pauseSentence(worker: WorkerView, { dueAt, isOffForAll }: PauseForecast, now: number): string {
  if (!worker.is_idle_detection_enabled) return "Never pauses: auto-pause is off for this worker.";
  if (isOffForAll) return "Never pauses: auto-pause is off for all workers.";
  const hold = activeHold(worker, now);
  if (hold !== null) {
    const until = Date.parse(hold.until);
    return `Held until ${formatUntil(until, now)}, ${formatRemaining(until - now)} left.`;
  }
  if (worker.sessions.length > 0)
    return `Does not pause while it has ${formatCount(worker.sessions.length, "session")}.`;
  if (dueAt === null) return "No activity data yet.";
  const left = Date.parse(dueAt) - now;
  if (left > 0) return `Pauses in ${formatRemaining(left)} unless used.`;
  return "Pauses soon unless used: two consecutive idle checks must agree.";
}

export interface PauseIndication {
  readonly kind: "held" | "pausing";
  /** Short: it is shown in a row. */
  readonly text: string;
}

/** What a row of the fleet shows about pausing; null if nothing. */
export function pauseIndicator(worker: WorkerView, now: number): PauseIndication | null {
  if (!canBePaused(worker)) return null;
  const hold = activeHold(worker, now);
  if (hold !== null) return { kind: "held", text: formatRemainingShort(Date.parse(hold.until) - now) };
  if (worker.target_pause_at === null || worker.sessions.length > 0) return null;
  const left = Date.parse(worker.target_pause_at) - now;
  if (left > NEAR_MS) return null;
  return { kind: "pausing", text: left > 0 ? formatRemaining(left) : "soon" };
}

export interface HoldChoice {
  readonly id: "hour" | "hours" | "day";
  readonly label: string;
  /** Milliseconds since 1970. */
  readonly until: number;
}

/** The usual lengths of a hold; the day ends in the user's time zone. */
export function holdChoices(now: number): readonly HoldChoice[] {
  const midnight = new Date(now);
  midnight.setHours(24, 0, 0, 0);
  return [
    { id: "hour", label: "1 hour", until: now + HOUR },
    { id: "hours", label: "4 hours", until: now + 4 * HOUR },
    { id: "day", label: "End of day", until: midnight.getTime() },
  ];
}

/** What is wrong with a custom time, or null; the field's value has no zone: it is local time. */
export function customTimeProblem(value: string, now: number): string | null {
  const until = Date.parse(value);
  if (Number.isNaN(until)) return "Choose a day and a time.";
  if (until <= now) return "Choose a time in the future.";
  return null;
}

/** The initial value of the date and time field: an hour from now, to the minute. */
export function customTimeDefault(now: number): string {
  const moment = new Date(now + HOUR);
  const two = (n: number) => String(n).padStart(2, "0");
  const date = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${date}T${two(moment.getHours())}:${two(moment.getMinutes())}`;
}

/** How long a drain may still take, and what it waits for. */
export function drainSentence(worker: WorkerView, now: number): string {
  const waits = worker.sessions.length;
  if (waits === 0) return "No sessions left: it stops now.";
  const sessions = formatCount(waits, "session");
  if (worker.drain_deadline_at === null) return `Waits for ${sessions}.`;
  const left = Date.parse(worker.drain_deadline_at) - now;
  return left > 0
    ? `Waits for ${sessions}, another ${formatRemaining(left)} at most.`
    : `Drain timeout reached with ${sessions}.`;
}
