/** What an admin has to look after in the smart account. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { loadDebts, openDebts, settle } from "../debts";
import { formatCount } from "../format";
import type { LicenseDebt } from "../generated/api";
import { keepFresh } from "../refresh";
import { denialFor } from "../session";
import { Glyph, Spinner } from "./icons";
import { Ago } from "./time";

const PACE = { everyMs: 300_000, soonMs: 2_000 };

export function Debts() {
  const isAdmin = denialFor("license") === null;
  useEffect(() => (isAdmin ? keepFresh(() => void loadDebts(), PACE) : undefined), [isAdmin]);
  const debts = openDebts.value;
  if (!isAdmin || debts.length === 0) return null;
  return (
    <section class="notice" data-color="orange" aria-label="License debts">
      <h2>
        <Glyph name="license" />
        {formatCount(debts.length, "license")} may still be in use
      </h2>
      <p>
        The workers are gone, but it could not be confirmed that their licenses are free. Look in your smart account,
        free them there, and settle them here.
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
