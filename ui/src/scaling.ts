/** The scaling audit log: why the fleet grew or shrank, and why it did not. */

import type { Tone } from "./model";

export const AUDIT_EVENTS = [
  "scale_up_accepted",
  "scale_up_rejected",
  "provisioned",
  "scale_down_initiated",
  "scale_down_failed",
  "drained",
  "license_given_back",
  "license_owed",
  "skipped_auto_pause",
  "skipped_not_idle",
  "skipped_not_eligible",
  "skipped_min_workers",
  "skipped_cooldown",
] as const;

export type AuditEvent = (typeof AUDIT_EVENTS)[number];

export interface AuditEntry {
  /** Sorts by time. */
  readonly id: string;
  readonly at: string;
  readonly event: AuditEvent;
  readonly by: string;
  readonly reason: string;
  readonly worker_id: string | null;
  readonly template_name: string | null;
  readonly aws_region: string | null;
}

export interface AuditPage {
  readonly items: readonly AuditEntry[];
  readonly next: string | null;
}

interface EventInfo {
  readonly label: string;
  readonly tone: Tone;
}

const EVENT_INFO: Readonly<Record<AuditEvent, EventInfo>> = {
  scale_up_accepted: { label: "Scale-up accepted", tone: "green" },
  scale_up_rejected: { label: "Scale-up rejected", tone: "orange" },
  provisioned: { label: "Provisioned", tone: "green" },
  scale_down_initiated: { label: "Scale-down begun", tone: "blue" },
  scale_down_failed: { label: "Scale-down failed", tone: "red" },
  drained: { label: "Drained", tone: "blue" },
  license_given_back: { label: "License given back", tone: "grey" },
  license_owed: { label: "License owed", tone: "red" },
  skipped_auto_pause: { label: "Skipped: being paused", tone: "grey" },
  skipped_not_idle: { label: "Skipped: in use", tone: "grey" },
  skipped_not_eligible: { label: "Skipped: kept", tone: "grey" },
  skipped_min_workers: { label: "Skipped: minimum reached", tone: "grey" },
  skipped_cooldown: { label: "Skipped: too soon", tone: "grey" },
};

/** A label from a newer server is shown as it is. */
export function auditInfo(event: AuditEvent): EventInfo {
  return EVENT_INFO[event] ?? { label: event, tone: "grey" };
}

/**
 * What is known after the newest page was fetched again, older pages that were opened included. A page
 * that does not reach down to what is known leaves a hole: then it stands alone.
 */
export function withNewest(known: AuditPage | null, newest: AuditPage): AuditPage {
  const [first, oldest] = [known?.items[0], newest.items.at(-1)];
  if (known === null || first === undefined || oldest === undefined || newest.next === null) return newest;
  const isJoined = oldest.id <= first.id;
  const older = known.items.filter(({ id }) => id < oldest.id);
  if (!isJoined || older.length === 0) return newest;
  return { items: [...newest.items, ...older], next: known.next };
}

export function withOlder(known: AuditPage, older: AuditPage): AuditPage {
  const oldest = known.items.at(-1)?.id;
  const unseen = older.items.filter(({ id }) => oldest === undefined || id < oldest);
  return { items: [...known.items, ...unseen], next: older.next };
}
