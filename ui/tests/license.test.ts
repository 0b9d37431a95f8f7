import { describe, expect, test } from "vitest";
import type { LicenseView } from "../src/generated/api";
import { canDeregister, canRegister, licenseStanding } from "../src/license";
import { license, worker } from "./examples";

function licensed(fields: Partial<LicenseView>, others: Parameters<typeof worker>[0] = {}) {
  return worker({ cml_ready: true, ...others, license: license(fields) });
}

describe("how a worker stands with its license", () => {
  test.each([
    ["unlicensed", "Not licensed", "grey"],
    ["registered", "Registered", "green"],
    ["deregistered", "Given back", "grey"],
    ["failed", "Failed", "red"],
  ] as const)("%s", (status, label, color) => {
    expect(licenseStanding(licensed({ status }))).toMatchObject({ label, color, moving: false });
  });

  test("a wish says what it waits for", () => {
    const wish = { pending_operation: "register" } as const;
    expect(licenseStanding(licensed(wish)).detail).toBe("Begins in a moment.");
    expect(licenseStanding(licensed(wish, { cml_ready: false })).detail).toBe("Begins when CML is ready.");
    expect(licenseStanding(licensed(wish, { status: "stopped" })).detail).toBe("Begins when the worker runs.");
  });

  test("an attempt under way counts itself", () => {
    const trying = { pending_operation: "register", operation_in_progress: true, attempts: 2 } as const;
    expect(licenseStanding(licensed(trying))).toMatchObject({ label: "Registering", color: "orange", moving: true });
    expect(licenseStanding(licensed(trying)).detail).toContain("second time");
  });

  test("a failure is told in CML's words, while it is tried again and when it was given up", () => {
    const last_error = "the token is not valid";
    const waiting = licenseStanding(licensed({ pending_operation: "register", attempts: 3, last_error }));
    expect(waiting.detail).toBe("Attempt 3 of 5 failed: the token is not valid");
    expect(licenseStanding(licensed({ status: "failed", last_error })).detail).toBe(last_error);
  });
});

describe("what can be done about it", () => {
  test("a license that is held can be given back, once", () => {
    expect(canDeregister(licensed({ status: "registered" }))).toBe(true);
    expect(canDeregister(licensed({ status: "registered", pending_operation: "deregister" }))).toBe(false);
    expect(canDeregister(licensed({ status: "unlicensed" }))).toBe(false);
  });

  test("another token can be tried unless one is being tried", () => {
    expect(canRegister(licensed({ status: "failed" }))).toBe(true);
    expect(canRegister(licensed({ pending_operation: "register", attempts: 1 }))).toBe(true);
    expect(canRegister(licensed({ pending_operation: "register", operation_in_progress: true }))).toBe(false);
    expect(canRegister(licensed({ status: "registered" }))).toBe(false);
    expect(canRegister(licensed({}, { desired_status: "terminated" }))).toBe(false);
  });
});
