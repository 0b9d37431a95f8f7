/** The license token of the fleet. The page only knows whether one is set. */

import { signal } from "@preact/signals";
import * as api from "../../app/api";
import { showError } from "../../app/toasts";

/** Null until it is loaded. */
export const hasFleetToken = signal<boolean | null>(null);

export async function loadFleetToken(): Promise<void> {
  try {
    hasFleetToken.value = (await api.getFleetLicense()).has_token;
  } catch {
    // Fetched again with the next poll.
  }
}

export async function setFleetToken(token: string): Promise<void> {
  hasFleetToken.value = (await api.setFleetLicense(token)).has_token;
}

export async function removeFleetToken(): Promise<void> {
  try {
    await api.removeFleetLicense();
    hasFleetToken.value = false;
  } catch (error) {
    showError("Removing the fleet's license token failed", error);
  }
}
