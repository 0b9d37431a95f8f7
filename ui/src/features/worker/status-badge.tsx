import type { DesiredStatus, WorkerStatus } from "../../generated/api";
import { statusInfo } from "./model";

export function StatusBadge({ status }: { status: WorkerStatus }) {
  const { label, color, moving } = statusInfo(status);
  return (
    <span class="badge" data-color={color} data-moving={moving} data-hollow={status === "terminated"}>
      <span class="dot" />
      {label}
    </span>
  );
}

/** The desired status, if the worker has not reached it. */
export function DesiredHint({ status, desired }: { status: WorkerStatus; desired: DesiredStatus }) {
  if (status === desired) return null;
  return (
    <span class="desired" title={`Desired: ${desired}`}>
      <span aria-hidden="true">→</span>
      <span class="visually-hidden">desired:</span> {desired}
    </span>
  );
}
