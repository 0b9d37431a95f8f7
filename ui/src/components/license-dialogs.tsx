import { useRef } from "preact/hooks";
import * as api from "../api";
import { change, closeDialog } from "../commands";
import { setFleetToken } from "../fleet-license";
import { applyWorkers, type WorkerEntry } from "../store";
import { Dialog } from "./dialog";
import { FormDialog, useSubmission } from "./form-dialog";

export function RegisterDialog({ entry }: { entry: WorkerEntry }) {
  return (
    <TokenDialog
      title={`License ${entry.worker.value.name}`}
      hint="Of your Cisco smart account. It is kept sealed, never shown, and thrown away when it was used."
      submitLabel="Register"
      use={async (token) => applyWorkers([await api.registerLicense(entry.id, token)])}
    />
  );
}

export function FleetLicenseDialog() {
  return (
    <TokenDialog
      title="License token of the fleet"
      hint="Of your Cisco smart account. It is kept sealed and never shown again, to nobody."
      submitLabel="Set token"
      use={setFleetToken}
    />
  );
}

interface TokenDialogProps {
  readonly title: string;
  readonly hint: string;
  readonly submitLabel: string;
  readonly use: (token: string) => Promise<void>;
}

function TokenDialog({ title, hint, submitLabel, use }: TokenDialogProps) {
  // The token is a secret: it stays in its field, in no signal, and leaves the field with the request.
  const field = useRef<HTMLInputElement>(null);
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
    input.value = "";
    if (!(await send(() => use(token)))) input.focus();
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
          maxLength={256}
          aria-invalid={problem.value !== null}
          aria-describedby="license-token-note"
        />
        <p id="license-token-note" class="field-note" data-error={problem.value !== null} aria-live="polite">
          {problem.value ?? hint}
        </p>
      </div>
    </FormDialog>
  );
}

export function DeregisterDialog({ entry }: { entry: WorkerEntry }) {
  const { name } = entry.worker.value;
  return (
    <Dialog title={`Give back the license of ${name}?`} onClose={closeDialog}>
      <p class="dialog-text">
        It is free for other workers then. Until it is licensed again, <strong>CML on {name} starts no labs</strong>{" "}
        beyond what it allows without a license.
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
            void change(entry, "Giving back the license of", api.deregisterLicense(entry.id));
          }}
        >
          Give back
        </button>
      </div>
    </Dialog>
  );
}
