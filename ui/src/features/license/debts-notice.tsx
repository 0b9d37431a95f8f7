/** License debts: what an admin must check in the Smart Account. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { startPolling } from "../../app/polling";
import { denialFor } from "../../app/session";
import type { LicenseDebt } from "../../generated/api";
import { formatCount } from "../../kit/format";
import { Glyph, Spinner } from "../../kit/icons";
import { Ago } from "../../kit/time";
import { loadDebts, openDebts, settle } from "./debts";

const INTERVAL = { everyMs: 300_000, afterChangeMs: 2_000 };

export function Debts() {
  const isAdmin = denialFor("license") === null;
  useEffect(() => (isAdmin ? startPolling(() => void loadDebts(), INTERVAL) : undefined), [isAdmin]);
  const debts = openDebts.value;
  if (!isAdmin || debts.length === 0) return null;
  return (
    <section class="notice" data-color="orange" aria-label="License debts">
      <h2>
        <Glyph name="license" />
        {formatCount(debts.length, "license")} may still be in use
      </h2>
      <p>
        The workers are terminated, but LCM could not confirm that their licenses are deregistered. Check your Smart
        Account, remove the registrations there, then settle the debts here.
      </p>
      <ul class="debts">
        {debts.map((debt) => (
          <Debt key={debt.worker_id} debt={debt} />
        ))}
      </ul>
    </section>
  );
}

function Debt({ debt }: { debt: LicenseDebt }) {
  const isBusy = useSignal(false);
  async function settleIt(): Promise<void> {
    isBusy.value = true;
    await settle(debt);
    isBusy.value = false;
  }
  return (
    <li class="debt">
      <span class="debt-text">
        <strong>{debt.worker_name}</strong> {debt.reason}
        <span class="debt-since">
          {" "}
          · <Ago at={debt.since} />
        </span>
      </span>
      <button
        type="button"
        class="button button-small"
        aria-label={`Settle ${debt.worker_name}`}
        aria-busy={isBusy.value}
        disabled={isBusy.value}
        onClick={() => void settleIt()}
      >
        {isBusy.value && <Spinner />}
        Settle
      </button>
    </li>
  );
}
