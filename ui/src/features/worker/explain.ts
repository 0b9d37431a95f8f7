/** The server's explanation of a worker's status, as text for users. */

import type { Explanation, Reason, WorkerView } from "../../generated/api";
import { formatAgo, formatRemaining } from "../../kit/format";
import type { PauseForecast } from "../idle/idle";
import { statusInfo } from "./model";

/** The meaning of the worker's status; the server's sentence also explains a status that this page does not know. */
export function meaningOf({ status }: WorkerView, explanation: Explanation | null): string {
  return explanation !== null && explanation.status === status ? explanation.summary : statusInfo(status).meaning;
}

/** Reasons whose time is their end. */
const UNTIL_CODES: ReadonlySet<string> = new Set(["held", "snoozed", "extracting"]);

/** Replaces sentences that contain a fixed time, which would contradict the ticking one beside it. */
const WITHOUT_TIME: Readonly<Record<string, string>> = { active: "last used", new: "no activity yet, idle since" };

export function reasonText({ code, text }: Reason): string {
  if (code === "held") return text; // begins with a user's name
  const sentence = WITHOUT_TIME[code] ?? text;
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}

/** The time of the reason relative to now; null if it has none. */
export function reasonTime({ code, at }: Reason, now: number): string | null {
  if (at === null) return null;
  const left = Date.parse(at) - now;
  if (left <= 0) return code === "pause" ? "soon" : formatAgo(Date.parse(at), now);
  return UNTIL_CODES.has(code) ? `${formatRemaining(left)} left` : `in ${formatRemaining(left)}`;
}

/** A pause that is due stays due now: fetching again at once would never end. */
const SETTLED_MS = 1_000;

/** The first time at which the explanation becomes stale; null if there is none. */
export function staleAt({ holding, next }: Explanation, now: number): number | null {
  const moments = [...holding, ...next].flatMap(({ at }) => (at === null ? [] : [Date.parse(at)]));
  const coming = moments.filter((at) => at > now + SETTLED_MS);
  return coming.length > 0 ? Math.min(...coming) : null;
}

/** When the explanation expects a pause; until it is loaded, the record's countdown is used. */
export function pauseForecast(worker: WorkerView, explanation: Explanation | null): PauseForecast {
  if (explanation === null) return { dueAt: worker.target_pause_at, isOffForAll: false };
  return {
    dueAt: explanation.next.find(({ code }) => code === "pause")?.at ?? null,
    isOffForAll: explanation.holding.some(({ code }) => code === "auto_pause_disabled"),
  };
}
