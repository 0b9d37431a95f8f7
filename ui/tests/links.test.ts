import { describe, expect, test } from "vitest";
import { cmlClosedReason, cmlPage, consolePage } from "../src/features/worker/links";
import { worker } from "./examples";

const READY = worker({ cml_ready: true, public_ip: "203.0.113.7", ec2_instance_id: "i-1" });

describe("the pages of CML", () => {
  test("are at the public address of a worker that is ready", () => {
    expect(cmlClosedReason(READY)).toBeNull();
    expect(cmlPage(READY)).toBe("https://203.0.113.7/");
    expect(cmlPage(READY, "lab 1")).toBe("https://203.0.113.7/lab/lab%201");
  });

  test.each([
    [{ cml_ready: false }, "not ready"],
    [{ public_ip: null }, "no public address"],
    [{ public_ip: "127.64.0.4" }, "simulated"],
    [{ status: "terminated" as const }, "terminated"],
  ])("cannot be opened with %o, and why is said", (fields, reason) => {
    expect(cmlClosedReason({ ...READY, ...fields })).toContain(reason);
    expect(cmlPage({ ...READY, ...fields })).toBeNull();
  });
});

test("an instance is in the console of its region, once it is launched", () => {
  expect(consolePage(READY)).toBe(
    "https://us-east-1.console.aws.amazon.com/ec2/home?region=us-east-1#InstanceDetails:instanceId=i-1",
  );
  expect(consolePage(worker())).toBeNull();
});
