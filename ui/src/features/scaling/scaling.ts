/** The scaling audit log: why the fleet was scaled, and why not. */

import type { AuditEvent } from "../../generated/api";
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
