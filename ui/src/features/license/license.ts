/** The state of a worker's license as text. */

import type { LicenseStatus, WorkerView } from "../../generated/api";
import { type Color, MAX_LICENSE_ATTEMPTS } from "../../generated/rules";

export interface LicenseInfo {
  readonly label: string;
  readonly color: Color;
  readonly moving: boolean;
  /** What it waits for or why it failed; empty if neither. */
  readonly detail: string;
}

const LICENSE_INFO: Readonly<Record<LicenseStatus, Omit<LicenseInfo, "detail" | "moving">>> = {
  unlicensed: { label: "Not licensed", color: "grey" },
  registered: { label: "Registered", color: "green" },
  deregistered: { label: "Deregistered", color: "grey" },
  failed: { label: "Failed", color: "red" },
};

export function licenseInfo(worker: WorkerView): LicenseInfo {
  const { status, pending_operation, last_error } = worker.license;
  if (pending_operation === null) {
    const info = LICENSE_INFO[status] ?? LICENSE_INFO.unlicensed;
    return { ...info, moving: false, detail: status === "registered" ? "" : last_error };
  }
  const label = pending_operation === "register" ? "Registering" : "Deregistering";
  return { label, color: "orange", moving: true, detail: progress(worker) };
}

function progress({ license, status, cml_ready }: WorkerView): string {
  const { attempts, operation_in_progress, last_error } = license;
  if (operation_in_progress) {
    return `Attempt ${attempts} of ${MAX_LICENSE_ATTEMPTS} is in progress; it takes up to 90 seconds.`;
  }
  if (last_error !== "") return `Attempt ${attempts} of ${MAX_LICENSE_ATTEMPTS} failed: ${last_error}`;
  if (status !== "running") return "Starts when the worker is running.";
  return cml_ready ? "Starts in a moment." : "Starts when CML is ready.";
}

/** A license can be deregistered while it is registered and no operation is pending. */
export function canDeregister({ license }: WorkerView): boolean {
  return license.status === "registered" && license.pending_operation === null;
}

export function canRegister({ license, desired_status }: WorkerView): boolean {
  const isFree = license.status !== "registered" && !license.operation_in_progress;
  return isFree && desired_status !== "terminated";
}
