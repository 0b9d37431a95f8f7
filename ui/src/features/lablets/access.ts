/** What people get for a session in use. It is kept by the open page alone: never in the store, never in a URL. */

import type { LabletSessionView, PortAccess, SessionAccess, WorkerView } from "../../generated/api";
import { SESSION_IN_USE } from "../../generated/rules";
import { isEnded } from "./model";

export function isInUse({ status }: LabletSessionView): boolean {
  return SESSION_IN_USE.includes(status);
}

/** What the access depends on: it is fetched when this changes; null if there is none to fetch. */
export function accessKey(session: LabletSessionView, worker: WorkerView | undefined): string | null {
  if (!isInUse(session)) return null;
  const { id, status, ends_at, lab } = session;
  const place = [worker?.id, worker?.status, worker?.public_ip, worker?.private_ip];
  return [id, status, ends_at, lab?.lab_id, ...place].join(" ");
}

/** Why there is no access, for a session that is not in use; null for one that has ended. */
export function noAccessReason(session: LabletSessionView): string | null {
  if (isEnded(session)) return null;
  const isOver = session.started_at !== null || session.desired_status === "terminated";
  return isOver ? "The lab is no longer for use." : "You reach the lab from here when every node has booted.";
}

export interface Login {
  readonly username: string;
  readonly password: string | null;
  /** The ports that it is for. */
  readonly labels: readonly string[];
}

/** Each login once. */
export function loginsOf({ ports }: SessionAccess): readonly Login[] {
  const logins = new Map<string, Login>();
  for (const { label, username, password } of ports) {
    if (username === null) continue;
    const key = JSON.stringify([username, password]);
    logins.set(key, { username, password, labels: [...(logins.get(key)?.labels ?? []), label] });
  }
  return [...logins.values()];
}

/** The ports that took no connection before the session was ready. */
export function refusedPorts({ ports }: SessionAccess): readonly string[] {
  return ports.filter(({ is_reachable }) => is_reachable === false).map(({ label }) => label);
}

/** "192.0.2.7:5001", and "[2001:db8::7]:5001". */
export function addressOf({ host, port }: PortAccess): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
