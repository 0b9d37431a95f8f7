/** The license token of the whole fleet. The page only ever knows whether there is one. */

import { signal } from "@preact/signals";
import * as api from "./api";
import { showError } from "./toasts";

/** Null until the server has said. */
export const hasFleetToken = signal<boolean | null>(null);

export async function loadFleetToken(): Promise<void> {
  try {
    hasFleetToken.value = (await api.getFleetLicense()).has_token;
  } catch {
    // Asked for again with the next change.
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
    showError("Removing the fleet's license token was refused", error);
  }
}
