/** The license token of the fleet. The page only knows whether one is set. */

import { signal } from "@preact/signals";
import * as api from "../../app/api";
import { showError } from "../../app/toasts";
import type { LicenseSettings, LicenseTerms } from "../../generated/api";

/** Null until it is loaded. */
export const hasFleetToken = signal<boolean | null>(null);
export const fleetTerms = signal<LicenseTerms>({});

function show({ has_token, terms }: LicenseSettings): void {
  hasFleetToken.value = has_token;
  fleetTerms.value = terms;
}

export async function loadFleetToken(): Promise<void> {
  try {
    show(await api.getFleetLicense());
  } catch {
    // Fetched again with the next poll.
  }
}

export async function setFleetToken(token: string, terms: LicenseTerms): Promise<void> {
  show(await api.setFleetLicense(token, terms));
}

export async function removeFleetToken(): Promise<void> {
  try {
    await api.removeFleetLicense();
    show({ has_token: false, terms: {} });
  } catch (error) {
    showError("Removing the fleet's license token failed", error);
  }
}
