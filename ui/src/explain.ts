/** Why a worker is as it is and what comes next: the server's account, as people read it. */

import { formatAgo, formatLeft } from "./format";
import type { Explanation, Reason, WorkerView } from "./generated/api";
import type { Judgement } from "./idle";
import { statusInfo } from "./model";

/** What the worker's status means, in the server's words: they also explain a status that this page does not know. */
export function meaningOf({ status }: WorkerView, explanation: Explanation | null): string {
  return explanation !== null && explanation.status === status ? explanation.summary : statusInfo(status).meaning;
}

/** Keeps the worker until then, rather than happening then. */
const LASTS: ReadonlySet<string> = new Set(["held", "snoozed"]);

/** Sentences that tell a time of their own, which would stand still beside the one that ticks. */
const WITHOUT_TIME: Readonly<Record<string, string>> = { active: "somebody used it" };

export function reasonText({ code, text }: Reason): string {
  if (code === "held") return text; // begins with somebody's name
  const sentence = WITHOUT_TIME[code] ?? text;
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}

/** When, as seen from now; null if the reason has no time. */
export function reasonTime({ code, at }: Reason, now: number): string | null {
  if (at === null) return null;
  const left = Date.parse(at) - now;
  if (left <= 0) return code === "pause" ? "soon" : formatAgo(Date.parse(at), now);
  return LASTS.has(code) ? `another ${formatLeft(left)}` : `in ${formatLeft(left)}`;
}

/** A pause that is due is always due now: asking again at once would never end. */
const SETTLED_MS = 1_000;

/** The first moment at which the account will no longer be true; null if there is none. */
export function staleAt({ holding, next }: Explanation, now: number): number | null {
  const moments = [...holding, ...next].flatMap(({ at }) => (at === null ? [] : [Date.parse(at)]));
  const coming = moments.filter((at) => at > now + SETTLED_MS);
  return coming.length > 0 ? Math.min(...coming) : null;
}

/** What the account says about a pause; the record's own countdown stands in until it is there. */
export function judgementOf(worker: WorkerView, explanation: Explanation | null): Judgement {
  if (explanation === null) return { dueAt: worker.target_pause_at, isOffForAll: false };
  return {
    dueAt: explanation.next.find(({ code }) => code === "pause")?.at ?? null,
    isOffForAll: explanation.holding.some(({ code }) => code === "auto_pause_disabled"),
  };
}
