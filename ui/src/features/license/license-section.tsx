/** The state of the worker's license. */

import type { WorkerEntry } from "../../app/store";
import { licenseInfo } from "./license";
import { termsText } from "./terms";

export function LicenseSection({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  if (worker.status === "terminated") return null;
  const { label, color, moving, detail } = licenseInfo(worker);
  const terms = termsText(worker.license.terms);
  return (
    <section class="panel-section" aria-label="License">
      <div class="section-head">
        <h3>License</h3>
        <span class="badge" data-color={color} data-moving={moving} data-testid="license">
          <span class="dot" />
          {label}
        </span>
      </div>
      {(worker.license.tier !== null || terms !== "" || detail !== "") && (
        <div class="box">
          {worker.license.tier !== null && <p>{worker.license.tier}</p>}
          {terms !== "" && <p>{`Requested: ${terms}`}</p>}
          {detail !== "" && <p class="license-detail">{detail}</p>}
        </div>
      )}
    </section>
  );
}
