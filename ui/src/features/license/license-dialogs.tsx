import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import * as api from "../../app/api";
import { applyChange, closeDialog } from "../../app/commands";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { applyWorkers, type WorkerEntry } from "../../app/store";
import type { LicenseTerms } from "../../generated/api";
import { MAX_LENGTH } from "../../generated/rules";
import { Dialog } from "../../kit/dialog";
import { fleetTerms, setFleetToken } from "./fleet-license";
import { formOf, termsOf, termsProblem, termsText } from "./terms";
import { TermsFields } from "./terms-fields";

export function RegisterDialog({ entry }: { entry: WorkerEntry }) {
  return (
    <TokenDialog
      title={`License ${entry.worker.value.name}`}
      hint="From your Cisco Smart Account. It is stored encrypted, never shown, and deleted after use."
      submitLabel="Register"
      terms={entry.worker.value.license.terms}
      use={async (token, terms) => applyWorkers([await api.registerLicense(entry.id, token, terms)])}
    />
  );
}

export function FleetLicenseDialog() {
  return (
    <TokenDialog
      title="License token of the fleet"
      hint="From your Cisco Smart Account. It is stored encrypted and never shown again."
      submitLabel="Set token"
      terms={fleetTerms.value}
      use={setFleetToken}
    />
  );
}

interface TokenDialogProps {
  readonly title: string;
  readonly hint: string;
  readonly submitLabel: string;
  /** Those that are set; they stay unless they are changed. */
  readonly terms: LicenseTerms;
  readonly use: (token: string, terms: LicenseTerms) => Promise<void>;
}

function TokenDialog({ title, hint, submitLabel, terms, use }: TokenDialogProps) {
  // The token is a secret: it stays in its field, in no signal, and the request clears the field.
  const field = useRef<HTMLInputElement>(null);
  const form = useSignal(formOf(terms));
  const { problem, isBusy, send } = useSubmission();

  async function submit(): Promise<void> {
    const input = field.current;
    if (input === null) return;
    const token = input.value.trim();
    if (token === "") {
      problem.value = "Paste a registration token.";
      input.focus();
      return;
    }
    problem.value = termsProblem(form.value);
    if (problem.value !== null) return;
    input.value = "";
    if (!(await send(() => use(token, termsOf(form.value))))) input.focus();
  }

  return (
    <FormDialog title={title} submitLabel={submitLabel} isBusy={isBusy} onSubmit={() => void submit()}>
      <div class="field">
        <label for="license-token">Registration token</label>
        <input
          id="license-token"
          ref={field}
          class="input mono"
          type="password"
          autocomplete="off"
          autofocus
          maxLength={MAX_LENGTH.licenseToken}
          aria-invalid={problem.value !== null}
          aria-describedby="license-token-note"
        />
        <p id="license-token-note" class="field-note" data-error={problem.value !== null} aria-live="polite">
          {problem.value ?? hint}
        </p>
      </div>
      <TermsFields form={form} isOpen={termsText(terms) !== ""} />
    </FormDialog>
  );
}

export function DeregisterDialog({ entry }: { entry: WorkerEntry }) {
  const { name } = entry.worker.value;
  return (
    <Dialog title={`Deregister the license of ${name}?`} onClose={closeDialog}>
      <p class="dialog-text">
        The license is free for other workers then. Until {name} is licensed again,{" "}
        <strong>CML on {name} starts no labs</strong> beyond what it allows without a license.
      </p>
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={closeDialog}>
          Cancel
        </button>
        <button
          type="button"
          class="button button-danger"
          onClick={() => {
            closeDialog();
            void applyChange(entry, "Deregistering the license of", api.deregisterLicense(entry.id));
          }}
        >
          Deregister
        </button>
      </div>
    </Dialog>
  );
}
