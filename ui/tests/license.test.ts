import { describe, expect, test } from "vitest";
import { canDeregister, canRegister, licenseInfo } from "../src/features/license/license";
import type { LicenseView } from "../src/generated/api";
import { license, worker } from "./examples";

function licensed(fields: Partial<LicenseView>, others: Parameters<typeof worker>[0] = {}) {
  return worker({ cml_ready: true, ...others, license: license(fields) });
}

describe("the state of a license", () => {
  test.each([
    ["unlicensed", "Not licensed", "grey"],
    ["registered", "Registered", "green"],
    ["deregistered", "Deregistered", "grey"],
    ["failed", "Failed", "red"],
  ] as const)("%s", (status, label, color) => {
    expect(licenseInfo(licensed({ status }))).toMatchObject({ label, color, moving: false });
  });

  test("a pending operation says what it waits for", () => {
    const requested = { pending_operation: "register" } as const;
    expect(licenseInfo(licensed(requested)).detail).toBe("Starts in a moment.");
    expect(licenseInfo(licensed(requested, { cml_ready: false })).detail).toBe("Starts when CML is ready.");
    expect(licenseInfo(licensed(requested, { status: "stopped" })).detail).toBe("Starts when the worker is running.");
  });

  test("an attempt in progress is counted", () => {
    const trying = { pending_operation: "register", operation_in_progress: true, attempts: 2 } as const;
    expect(licenseInfo(licensed(trying))).toMatchObject({ label: "Registering", color: "orange", moving: true });
    expect(licenseInfo(licensed(trying)).detail).toContain("Attempt 2 of 5");
  });

  test("a failure shows CML's message, between attempts and after the last one", () => {
    const last_error = "the token is not valid";
    const waiting = licenseInfo(licensed({ pending_operation: "register", attempts: 3, last_error }));
    expect(waiting.detail).toBe("Attempt 3 of 5 failed: the token is not valid");
    expect(licenseInfo(licensed({ status: "failed", last_error })).detail).toBe(last_error);
  });
});

describe("license operations", () => {
  test("a registered license can be deregistered, once", () => {
    expect(canDeregister(licensed({ status: "registered" }))).toBe(true);
    expect(canDeregister(licensed({ status: "registered", pending_operation: "deregister" }))).toBe(false);
    expect(canDeregister(licensed({ status: "unlicensed" }))).toBe(false);
  });

  test("another token can be registered unless an attempt is in progress", () => {
    expect(canRegister(licensed({ status: "failed" }))).toBe(true);
    expect(canRegister(licensed({ pending_operation: "register", attempts: 1 }))).toBe(true);
    expect(canRegister(licensed({ pending_operation: "register", operation_in_progress: true }))).toBe(false);
    expect(canRegister(licensed({ status: "registered" }))).toBe(false);
    expect(canRegister(licensed({}, { desired_status: "terminated" }))).toBe(false);
  });
});
