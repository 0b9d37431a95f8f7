/** The scaling audit log: why the fleet grew or shrank, and why it did not. */

import type { AuditEvent, AuditPage } from "./generated/api";
import type { Color } from "./generated/rules";

interface EventInfo {
  readonly label: string;
  readonly color: Color;
}

const EVENT_INFO: Readonly<Record<AuditEvent, EventInfo>> = {
  scale_up_accepted: { label: "Scale-up accepted", color: "green" },
  scale_up_rejected: { label: "Scale-up rejected", color: "orange" },
  provisioned: { label: "Provisioned", color: "green" },
  scale_down_initiated: { label: "Scale-down begun", color: "blue" },
  scale_down_failed: { label: "Scale-down failed", color: "red" },
  drained: { label: "Drained", color: "blue" },
  license_given_back: { label: "License given back", color: "grey" },
  license_owed: { label: "License owed", color: "red" },
  skipped_auto_pause: { label: "Skipped: being paused", color: "grey" },
  skipped_not_idle: { label: "Skipped: in use", color: "grey" },
  skipped_not_eligible: { label: "Skipped: kept", color: "grey" },
  skipped_min_workers: { label: "Skipped: minimum reached", color: "grey" },
  skipped_cooldown: { label: "Skipped: too soon", color: "grey" },
};

/** A label from a newer server is shown as it is. */
export function auditInfo(event: AuditEvent): EventInfo {
  return EVENT_INFO[event] ?? { label: event, color: "grey" };
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
