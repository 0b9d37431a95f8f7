/** How a worker stands with its license, in words. */

import type { LicenseStatus, WorkerView } from "./generated/api";
import { type Color, MAX_LICENSE_ATTEMPTS } from "./generated/rules";

export interface Standing {
  readonly label: string;
  readonly color: Color;
  readonly moving: boolean;
  /** What it waits for or what went wrong; empty if there is nothing to say. */
  readonly detail: string;
}

const STANDING: Readonly<Record<LicenseStatus, Omit<Standing, "detail" | "moving">>> = {
  unlicensed: { label: "Not licensed", color: "grey" },
  registered: { label: "Registered", color: "green" },
  deregistered: { label: "Given back", color: "grey" },
  failed: { label: "Failed", color: "red" },
};

export function licenseStanding(worker: WorkerView): Standing {
  const { status, pending_operation, last_error } = worker.license;
  if (pending_operation === null) {
    const standing = STANDING[status] ?? STANDING.unlicensed;
    return { ...standing, moving: false, detail: status === "registered" ? "" : last_error };
  }
  const label = pending_operation === "register" ? "Registering" : "Giving back";
  return { label, color: "orange", moving: true, detail: progress(worker) };
}

function progress({ license, status, cml_ready }: WorkerView): string {
  const { attempts, operation_in_progress, last_error } = license;
  if (operation_in_progress) {
    const again = attempts > 1 ? ` for the ${ordinal(attempts)} time` : "";
    return `CML is being asked${again}; this takes up to a minute and a half.`;
  }
  if (last_error !== "") return `Attempt ${attempts} of ${MAX_LICENSE_ATTEMPTS} failed: ${last_error}`;
  if (status !== "running") return "Begins when the worker runs.";
  return cml_ready ? "Begins in a moment." : "Begins when CML is ready.";
}

function ordinal(n: number): string {
  return ["", "first", "second", "third", "fourth", "fifth"][n] ?? `${n}th`;
}

/** Whether anything can be given back, now or as soon as a registration is over. */
export function canDeregister({ license }: WorkerView): boolean {
  return license.status === "registered" && license.pending_operation === null;
}

export function canRegister({ license, desired_status }: WorkerView): boolean {
  const isFree = license.status !== "registered" && !license.operation_in_progress;
  return isFree && desired_status !== "terminated";
}
