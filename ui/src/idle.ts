/** When a worker is paused, what keeps it, and how long people may want to keep it: rules without a browser. */

import { formatCount, formatLeft, formatLeftRoughly, formatUntil } from "./format";
import type { Hold, WorkerView } from "./generated/api";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** A pause that is this near shows in the fleet. */
const NEAR_MS = 15 * MINUTE;

/** Only a worker that runs, and should, can be paused. */
export function mayBePaused(worker: WorkerView): boolean {
  return worker.status === "running" && worker.desired_status === "running";
}

/** The hold that keeps the worker now; one that is over keeps nothing. */
export function holdNow(worker: WorkerView, now: number): Hold | null {
  return worker.hold !== null && Date.parse(worker.hold.until) > now ? worker.hold : null;
}

/** What the record alone cannot tell. */
export interface Judgement {
  /** When a pause is due; null if none is. */
  readonly dueAt: string | null;
  /** Auto-pause is off for all workers. */
  readonly isOffForAll: boolean;
}

/** Whether and when it is paused, in one sentence: the first thing that keeps it is named. */
export function pauseSentence(worker: WorkerView, { dueAt, isOffForAll }: Judgement, now: number): string {
  if (!worker.is_idle_detection_enabled) return "Never pauses: auto-pause is off for this worker.";
  if (isOffForAll) return "Never pauses: auto-pause is off for all workers.";
  const hold = holdNow(worker, now);
  if (hold !== null) {
    const until = Date.parse(hold.until);
    return `Kept running until ${formatUntil(until, now)}, another ${formatLeft(until - now)}.`;
  }
  if (worker.sessions.length > 0)
    return `Does not pause while ${formatCount(worker.sessions.length, "session")} use it.`;
  if (dueAt === null) return "Whether it is used is not known yet.";
  const left = Date.parse(dueAt) - now;
  if (left > 0) return `Pauses in ${formatLeft(left)} unless used.`;
  return "Pauses soon unless used: LCM looks twice before it does.";
}

export interface IdleSign {
  readonly kind: "held" | "pausing";
  /** For the little room there is in a row. */
  readonly text: string;
}

/** What a row of the fleet shows about pausing; null if there is nothing to notice. */
export function idleSign(worker: WorkerView, now: number): IdleSign | null {
  if (!mayBePaused(worker)) return null;
  const hold = holdNow(worker, now);
  if (hold !== null) return { kind: "held", text: formatLeftRoughly(Date.parse(hold.until) - now) };
  if (worker.target_pause_at === null || worker.sessions.length > 0) return null;
  const left = Date.parse(worker.target_pause_at) - now;
  if (left > NEAR_MS) return null;
  return { kind: "pausing", text: left > 0 ? formatLeft(left) : "soon" };
}

export interface HoldChoice {
  readonly id: "hour" | "hours" | "day";
  readonly label: string;
  /** Milliseconds since 1970. */
  readonly until: number;
}

/** How long people usually want to keep a worker; the day ends where the person is. */
export function holdChoices(now: number): readonly HoldChoice[] {
  const midnight = new Date(now);
  midnight.setHours(24, 0, 0, 0);
  return [
    { id: "hour", label: "1 hour", until: now + HOUR },
    { id: "hours", label: "4 hours", until: now + 4 * HOUR },
    { id: "day", label: "End of day", until: midnight.getTime() },
  ];
}

/** What is wrong with a time of the person's own, or null; the field's value has no zone: it is meant here. */
export function ownTimeProblem(value: string, now: number): string | null {
  const until = Date.parse(value);
  if (Number.isNaN(until)) return "Choose a day and a time.";
  if (until <= now) return "Choose a time that is still to come.";
  return null;
}

/** The value a date and time field begins with: an hour from now, to the minute. */
export function ownTimeDefault(now: number): string {
  const moment = new Date(now + HOUR);
  const two = (n: number) => String(n).padStart(2, "0");
  const date = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${date}T${two(moment.getHours())}:${two(moment.getMinutes())}`;
}

/** How long a drain may still take, and for whom it waits. */
export function drainSentence(worker: WorkerView, now: number): string {
  const waits = worker.sessions.length;
  if (waits === 0) return "Nobody uses it any more: it stops now.";
  const sessions = formatCount(waits, "session");
  if (worker.drain_deadline_at === null) return `Waits for ${sessions}.`;
  const left = Date.parse(worker.drain_deadline_at) - now;
  return left > 0 ? `Waits for ${sessions}, another ${formatLeft(left)} at most.` : `Waits for ${sessions} no longer.`;
}
