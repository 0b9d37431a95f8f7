/** Licenses that workers which are gone may still hold: somebody has to look after each. */

import { computed, signal } from "@preact/signals";
import * as api from "./api";
import type { LicenseDebt } from "./generated/api";
import { showError } from "./toasts";

const known = signal<readonly LicenseDebt[]>([]);

export const openDebts = computed(() => known.value.filter(({ settled_by }) => settled_by === null));

export async function loadDebts(): Promise<void> {
  try {
    known.value = await api.listDebts();
  } catch {
    // Asked for again with the next change.
  }
}

export function forgetDebts(): void {
  known.value = [];
}

export async function settle(debt: LicenseDebt): Promise<void> {
  try {
    const settled = await api.settleDebt(debt.worker_id);
    known.value = known.value.map((other) => (other.worker_id === settled.worker_id ? settled : other));
  } catch (error) {
    showError(`Settling the license of ${debt.worker_name} was refused`, error);
  }
}
