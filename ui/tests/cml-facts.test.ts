import { describe, expect, test } from "vitest";
import { cmlHealthText, cmlLicenseText, cmlSystemText } from "../src/features/worker/cml-facts";
import { worker } from "./examples";

const HEALTH = { valid: true, is_licensed: true, is_enterprise: true, failing: [] };

describe("what CML reports of itself", () => {
  test("a worker that has reported nothing shows nothing", () => {
    const fresh = worker({});
    expect([cmlHealthText(fresh), cmlLicenseText(fresh), cmlSystemText(fresh)]).toEqual([null, null, null]);
  });

  test("a failing check is named", () => {
    const failing = { ...HEALTH, valid: false, failing: ["cml: kvm_vmx_enabled"] };
    expect(cmlHealthText(worker({ cml_health: failing }))).toBe("failing: cml: kvm_vmx_enabled");
  });

  test("health is unknown until CML has checked it", () => {
    expect(cmlHealthText(worker({ cml_health: HEALTH }))).toBe("healthy");
    expect(cmlHealthText(worker({ cml_health: { ...HEALTH, valid: null } }))).toBe("unknown");
  });

  test("a license is its product and both of its states", () => {
    const license = {
      product_license: "CML_Enterprise",
      registration_status: "COMPLETED",
      authorization_status: "IN_COMPLIANCE",
    };
    expect(cmlLicenseText(worker({ cml_license: license }))).toBe("CML_Enterprise, COMPLETED, IN_COMPLIANCE");
  });

  test("what CML leaves open is left out", () => {
    const info = { oui: "52:54:00:00:00:00", motd: null, allow_ssh_pubkey_auth: false };
    expect(cmlSystemText(worker({ cml_system_info: info }))).toBe("oui 52:54:00:00:00:00, allow_ssh_pubkey_auth false");
  });
});
