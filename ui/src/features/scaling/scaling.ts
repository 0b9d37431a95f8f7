/** The scaling audit log: why the fleet was scaled, and why not. */

import type { AuditEvent, AuditPage } from "../../generated/api";
import type { Color } from "../../generated/rules";

interface EventInfo {
  readonly label: string;
  readonly color: Color;
}

const EVENT_INFO: Readonly<Record<AuditEvent, EventInfo>> = {
  scale_up_accepted: { label: "Scale-up accepted", color: "green" },
  scale_up_rejected: { label: "Scale-up rejected", color: "orange" },
  provisioned: { label: "Provisioned", color: "green" },
  scale_down_initiated: { label: "Scale-down started", color: "blue" },
  scale_down_failed: { label: "Scale-down failed", color: "red" },
  drained: { label: "Drained", color: "blue" },
  license_given_back: { label: "License deregistered", color: "grey" },
  license_owed: { label: "License debt", color: "red" },
  skipped_auto_pause: { label: "Skipped: being paused", color: "grey" },
  skipped_not_idle: { label: "Skipped: in use", color: "grey" },
  skipped_not_eligible: { label: "Skipped: not eligible", color: "grey" },
  skipped_min_workers: { label: "Skipped: minimum reached", color: "grey" },
  skipped_cooldown: { label: "Skipped: cooldown", color: "grey" },
};

/** An event of a newer server is shown by its name. */
export function auditInfo(event: AuditEvent): EventInfo {
  return EVENT_INFO[event] ?? { label: event, color: "grey" };
}

/**
 * The log after its newest page was fetched again, including older pages that were loaded. A page that does
 * not reach the known entries would leave a gap: it then replaces them.
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
