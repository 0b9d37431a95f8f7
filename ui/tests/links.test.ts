import { describe, expect, test } from "vitest";
import { cmlClosedReason, cmlPage, consolePage } from "../src/features/worker/links";
import { worker } from "./examples";

const PUBLIC = { uses_private_ip: false, port: 443 };
const READY = worker({ cml_ready: true, public_ip: "203.0.113.7", ec2_instance_id: "i-1" });

describe("the pages of CML", () => {
  test("are at the public address of a worker that is ready", () => {
    expect(cmlClosedReason(READY, PUBLIC)).toBeNull();
    expect(cmlPage(READY, PUBLIC)).toBe("https://203.0.113.7/");
    expect(cmlPage(READY, PUBLIC, "lab 1")).toBe("https://203.0.113.7/lab/lab%201");
  });

  test("are where the server says that people reach it: a fleet may have private addresses only", () => {
    const both = { ...READY, private_ip: "10.0.0.7" };
    expect(cmlPage(both, { uses_private_ip: true, port: 8443 })).toBe("https://10.0.0.7:8443/");
    expect(cmlPage({ ...both, public_ip: null }, PUBLIC)).toBe("https://10.0.0.7/");
    expect(cmlPage({ ...READY, private_ip: null }, { uses_private_ip: true, port: 443 })).toBeNull();
  });

  test.each([
    [{ cml_ready: false }, "not ready"],
    [{ public_ip: null, private_ip: null }, "no address"],
    [{ public_ip: "127.64.0.4" }, "simulated"],
    [{ status: "terminated" as const }, "terminated"],
  ])("cannot be opened with %o, and why is said", (fields, reason) => {
    expect(cmlClosedReason({ ...READY, ...fields }, PUBLIC)).toContain(reason);
    expect(cmlPage({ ...READY, ...fields }, PUBLIC)).toBeNull();
  });
});

test("an instance is in the console of its region, once it is launched", () => {
  expect(consolePage(READY)).toBe(
    "https://us-east-1.console.aws.amazon.com/ec2/home?region=us-east-1#InstanceDetails:instanceId=i-1",
  );
  expect(consolePage(worker())).toBeNull();
});
