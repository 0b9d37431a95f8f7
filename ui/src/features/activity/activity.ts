/** What happened in the fleet, in the words of the page. */

import type { ActivityEntry, ActivityKind, AuditEvent, WorkerStatus } from "../../generated/api";
import type { Color } from "../../generated/rules";
import { fromLocalInput, toLocalInput } from "../lablets/slot";
import { auditInfo } from "../scaling/scaling";
import { statusInfo } from "../worker/model";

const KIND_LABEL: Readonly<Record<ActivityKind, string>> = {
  worker: "Workers",
  scaling: "Scaling",
  lablet: "Lablets",
  change: "Changes",
  refusal: "Refusals",
};

export function kindLabel(kind: ActivityKind): string {
  return KIND_LABEL[kind] ?? kind;
}

interface EventInfo {
  readonly label: string;
  readonly color: Color;
}

/** The words and the color that the other pages use for the event. */
export function eventInfo({ kind, event }: ActivityEntry): EventInfo {
  switch (kind) {
    case "worker":
      return statusInfo(event as WorkerStatus);
    case "scaling":
      return auditInfo(event as AuditEvent);
    case "lablet":
      return { label: sentence(event), color: "blue" };
    case "refusal":
      return { label: event, color: "red" };
    default:
      return { label: event, color: "grey" };
  }
}

/** "lab_leak_reported" as "Lab leak reported". */
function sentence(event: string): string {
  const words = event.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export interface ActivityFilter {
  readonly kind: ActivityKind | null;
  readonly by: string;
  readonly about: string;
  /** ISO 8601; "" for no bound. */
  readonly since: string;
  readonly until: string;
}

export function filterOf(query: URLSearchParams): ActivityFilter {
  const kind = query.get("kind");
  return {
    kind: kind !== null && kind in KIND_LABEL ? (kind as ActivityKind) : null,
    by: query.get("by") ?? "",
    about: query.get("about") ?? "",
    since: momentOf(query.get("since")),
    until: momentOf(query.get("until")),
  };
}

/** What is no time bounds nothing. */
function momentOf(text: string | null): string {
  const moment = Date.parse(text ?? "");
  return Number.isNaN(moment) ? "" : new Date(moment).toISOString();
}

/** What a datetime-local field shows for a bound, in the browser's zone, and the bound that it names. */
export function fieldOf(bound: string): string {
  return bound === "" ? "" : toLocalInput(Date.parse(bound));
}

export function boundOf(field: string): string {
  const moment = fromLocalInput(field);
  return moment === null ? "" : new Date(moment).toISOString();
}

/** The filter as a query, of the page and of the API alike. */
export function queryOf({ kind, by, about, since, until }: ActivityFilter): URLSearchParams {
  const query = new URLSearchParams();
  if (kind !== null) query.set("kind", kind);
  if (by !== "") query.set("by", by);
  if (about !== "") query.set("about", about);
  if (since !== "") query.set("since", since);
  if (until !== "") query.set("until", until);
  return query;
}

export function activityHref(filter: ActivityFilter, further: Readonly<Record<string, string>>): string {
  const query = queryOf(filter);
  for (const [name, value] of Object.entries(further)) query.set(name, value);
  return `/api/activity?${query}`;
}
