/** License debts: licenses that terminated workers may still hold. An admin must settle each. */

import { computed, signal } from "@preact/signals";
import * as api from "../../app/api";
import { showError } from "../../app/toasts";
import type { LicenseDebt } from "../../generated/api";

const known = signal<readonly LicenseDebt[]>([]);

export const openDebts = computed(() => known.value.filter(({ settled_by }) => settled_by === null));

export async function loadDebts(): Promise<void> {
  try {
    known.value = await api.listDebts();
  } catch {
    // Fetched again with the next poll.
  }
}

export function clearDebts(): void {
  known.value = [];
}

export async function settle(debt: LicenseDebt): Promise<void> {
  try {
    const settled = await api.settleDebt(debt.worker_id);
    known.value = known.value.map((other) => (other.worker_id === settled.worker_id ? settled : other));
  } catch (error) {
    showError(`Settling the license of ${debt.worker_name} failed`, error);
  }
}
