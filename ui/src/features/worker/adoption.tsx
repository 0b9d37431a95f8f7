/** Workers whose instances LCM found and did not launch: what was found, and their adoption by an admin. */

import { useSignal } from "@preact/signals";
import * as api from "../../app/api";
import { openDialog } from "../../app/commands";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { denialFor } from "../../app/session";
import { sendAll } from "../../app/several";
import { applyWorkers, type WorkerEntry } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { formatCount } from "../../kit/format";
import { planOf } from "../fleet/bulk";
import { Skipped } from "../fleet/bulk-dialog";
import { clearSelection } from "../fleet/selection";

export function AdoptionSection({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  if (worker.is_trusted) return null;
  const denial = denialFor("adopt");
  return (
    <section class="panel-section" aria-label="Adoption">
      <div class="section-head">
        <h3>Discovered, not adopted</h3>
        <button
          type="button"
          class="button button-small"
          disabled={denial !== null}
          title={denial ?? ""}
          onClick={() => {
            openDialog.value = { kind: "adopt", entries: [entry] };
          }}
        >
          Adopt…
        </button>
      </div>
      <div class="box">
        <p>LCM did not launch this instance: its CML gets no login, no license and no sessions.</p>
        <Found worker={worker} />
      </div>
    </section>
  );
}

function Found({ worker }: { worker: WorkerView }) {
  const found = worker.discovered;
  return (
    <dl class="fingerprints">
      <dt>Instance</dt>
      <dd class="mono">{worker.ec2_instance_id}</dd>
      <dt>Account</dt>
      <dd class="mono">{found?.owner_id ?? "unknown"}</dd>
      <dt>Network</dt>
      <dd class="mono">{[found?.vpc_id, found?.subnet_id, worker.private_ip].filter(Boolean).join(" ")}</dd>
      <dt>AMI</dt>
      <dd class="mono">{worker.ami_id}</dd>
      <dt>Certificate</dt>
      <dd class="mono">{worker.cml_certificate_sha256 ?? "none presented yet: the first one is pinned"}</dd>
    </dl>
  );
}

export function AdoptDialog({ entries }: { entries: readonly WorkerEntry[] }) {
  // What is shown is what is adopted: another certificate meanwhile is refused.
  const plan = useSignal(
    planOf(
      entries.map(({ worker }) => worker.peek()),
      "adopt",
    ),
  ).value;
  const [only] = plan.changed;
  const isOne = plan.changed.length === 1 && only !== undefined;
  const { problem, isBusy, send } = useSubmission();

  function submit(): void {
    void send(async () => {
      const refusals = await sendAll(plan.changed, async ({ id, cml_certificate_sha256 }) => {
        applyWorkers([await api.adopt(id, cml_certificate_sha256)]);
      });
      const [first] = refusals;
      if (first !== undefined)
        throw new Error(isOne ? first.message : `${refusals.length} not adopted; ${first.item.name}: ${first.message}`);
      clearSelection();
    });
  }

  return (
    <FormDialog
      title={`Adopt ${isOne ? only.name : formatCount(plan.changed.length, "worker")}?`}
      submitLabel="Adopt"
      isBusy={isBusy}
      problem={problem}
      isDangerous
      isWide
      onSubmit={submit}
    >
      <p class="dialog-text">
        Compare each with its server first: <strong>it gets LCM's password for CML.</strong> A tag proves nothing.
      </p>
      {plan.changed.map((worker) => (
        <section key={worker.id} class="bulk-part" aria-label={worker.name}>
          {!isOne && <h3>{worker.name}</h3>}
          <Found worker={worker} />
        </section>
      ))}
      <Skipped plan={plan} />
    </FormDialog>
  );
}
