/** A CML server that presents another certificate than the pinned one, and its acceptance by an admin. */

import * as api from "../../app/api";
import { applyChange, closeDialog, openDialog } from "../../app/commands";
import { denialFor } from "../../app/session";
import type { WorkerEntry } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { Dialog } from "../../kit/dialog";

export function CertificateSection({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  if (worker.cml_refused_certificate_sha256 === null) return null;
  const denial = denialFor("certificate");
  return (
    <section class="panel-section" aria-label="Certificate">
      <div class="section-head">
        <h3>Certificate changed</h3>
        <button
          type="button"
          class="button button-small"
          disabled={denial !== null}
          title={denial ?? ""}
          onClick={() => {
            openDialog.value = { kind: "certificate", entry };
          }}
        >
          Accept…
        </button>
      </div>
      <div class="box">
        <p>LCM sends nothing to this CML: it presents another certificate than the pinned one.</p>
        <Fingerprints worker={worker} />
      </div>
    </section>
  );
}

function Fingerprints({ worker }: { worker: WorkerView }) {
  return (
    <dl class="fingerprints">
      <dt>Pinned</dt>
      <dd class="mono">{worker.cml_certificate_sha256}</dd>
      <dt>Presented</dt>
      <dd class="mono">{worker.cml_refused_certificate_sha256}</dd>
    </dl>
  );
}

export function CertificateDialog({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const presented = worker.cml_refused_certificate_sha256;
  return (
    <Dialog title={`Accept the certificate of ${worker.name}?`} onClose={closeDialog}>
      <p class="dialog-text">
        Compare it with the one on the server first:{" "}
        <strong>the server that presents it gets LCM's password for CML.</strong> If it was not renewed or reinstalled
        on purpose, another server answers at this address.
      </p>
      <Fingerprints worker={worker} />
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={closeDialog}>
          Cancel
        </button>
        <button
          type="button"
          class="button button-danger"
          disabled={presented === null}
          onClick={() => {
            closeDialog();
            if (presented !== null) {
              void applyChange(entry, "Accepting the certificate of", api.acceptCertificate(entry.id, presented));
            }
          }}
        >
          Accept certificate
        </button>
      </div>
    </Dialog>
  );
}
