import { describe, expect, test } from "vitest";
import { accessKey, addressOf, loginsOf, noAccessReason, refusedPorts } from "../src/features/lablets/access";
import type { PortAccess, SessionAccess } from "../src/generated/api";
import { SESSION_IN_USE, SESSION_STATUSES } from "../src/generated/rules";
import { lablet, worker } from "./examples";

function port(label: string, fields: Partial<PortAccess> = {}): PortAccess {
  return {
    label,
    node: label,
    node_definition: "iol-xe",
    kind: "pat",
    protocol: "ssh",
    host: "192.0.2.7",
    port: 2000,
    uri: null,
    is_reachable: null,
    username: null,
    password: null,
    ...fields,
  };
}

function access(...ports: PortAccess[]): SessionAccess {
  return {
    session_id: "s-1",
    status: "running",
    worker_id: "w-1",
    host: "192.0.2.7",
    lab_id: "lab-1",
    lab_url: "https://192.0.2.7/lab/lab-1",
    valid_until: null,
    probed_at: null,
    ports,
  };
}

describe("the access to a lab", () => {
  test("is fetched while the session is in use, and otherwise not", () => {
    const fetched = SESSION_STATUSES.filter((status) => accessKey(lablet({ status }), undefined) !== null);
    expect(fetched).toEqual(SESSION_IN_USE);
  });

  test("is fetched again when the address of the worker, the status or the end changes, and not for anything else", () => {
    const session = lablet({ worker_id: "w-1" });
    const key = accessKey(session, worker({ public_ip: "192.0.2.7" }));
    expect(accessKey(session, worker({ public_ip: "192.0.2.8" }))).not.toBe(key);
    expect(accessKey(session, worker({ public_ip: "192.0.2.7", status: "stopped" }))).not.toBe(key);
    expect(accessKey({ ...session, status: "ready" }, worker({ public_ip: "192.0.2.7" }))).not.toBe(key);
    expect(accessKey({ ...session, ends_at: "later" }, worker({ public_ip: "192.0.2.7" }))).not.toBe(key);
    expect(accessKey({ ...session, version: 9 }, worker({ public_ip: "192.0.2.7", labs_count: 4 }))).toBe(key);
  });

  test("a session without it says why, one that has ended says nothing", () => {
    expect(noAccessReason(lablet({ status: "instantiating" }))).toContain("when every node has booted");
    expect(noAccessReason(lablet({ status: "stopping", started_at: "2026-03-02T10:00:00Z" }))).toContain("no longer");
    expect(noAccessReason(lablet({ status: "archived" }))).toBeNull();
  });

  test("each login is shown once", () => {
    const login = { username: "cisco", password: "p1" };
    const logins = loginsOf(access(port("r1", login), port("r2", login), port("r3", { username: "root" }), port("r4")));
    expect(logins.map(({ username, labels }) => [username, labels])).toEqual([
      ["cisco", ["r1", "r2"]],
      ["root", ["r3"]],
    ]);
  });

  test("ports that refused the test are named, those of which nothing is known are not", () => {
    const ports = [port("r1", { is_reachable: false }), port("r2"), port("r3", { is_reachable: true })];
    expect(refusedPorts(access(...ports))).toEqual(["r1"]);
  });

  test("an address is typed as it is shown", () => {
    expect(addressOf(port("r1"))).toBe("192.0.2.7:2000");
    expect(addressOf(port("r1", { host: "2001:db8::7" }))).toBe("[2001:db8::7]:2000");
  });
});
