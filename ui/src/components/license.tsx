/** The worker's license: how it stands, and how it is registered or given back. */

import { openDialog } from "../commands";
import { canDeregister, canRegister, licenseStanding } from "../license";
import { refusalFor } from "../session";
import type { WorkerEntry } from "../store";

export function LicenseSection({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  if (worker.status === "terminated") return null;
  const { label, tone, moving, detail } = licenseStanding(worker);
  return (
    <section class="panel-section" aria-label="License">
      <div class="section-head">
        <h3>License</h3>
        <span class="badge" data-tone={tone} data-moving={moving} data-testid="license">
          <span class="dot" />
          {label}
        </span>
      </div>
      <div class="box">
        {worker.license.tier !== null && <p>{worker.license.tier}</p>}
        {detail !== "" && <p class="license-detail">{detail}</p>}
        <div class="box-buttons">
          {canRegister(worker) && <LicenseButton entry={entry} kind="register" label="Register…" />}
          {canDeregister(worker) && <LicenseButton entry={entry} kind="deregister" label="Give back…" />}
        </div>
      </div>
    </section>
  );
}

interface LicenseButtonProps {
  readonly entry: WorkerEntry;
  readonly kind: "register" | "deregister";
  readonly label: string;
}

function LicenseButton({ entry, kind, label }: LicenseButtonProps) {
  const refusal = refusalFor("license");
  return (
    <button
      type="button"
      class="button button-small"
      disabled={refusal !== null}
      title={refusal ?? ""}
      onClick={() => {
        openDialog.value = { kind, entry };
      }}
    >
      {label}
    </button>
  );
}
