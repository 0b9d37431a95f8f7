import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import * as api from "../api";
import { change, closeDialog } from "../commands";
import { applyWorkers, type WorkerEntry } from "../store";
import { Dialog } from "./dialog";
import { Spinner } from "./icons";

export function RegisterDialog({ entry }: { entry: WorkerEntry }) {
  // The token is a secret: it stays in its field, in no signal, and leaves the field with the request.
  const field = useRef<HTMLInputElement>(null);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    const input = field.current;
    if (isBusy.value || input === null) return;
    const token = input.value.trim();
    if (token === "") {
      problem.value = "Paste a registration token.";
      input.focus();
      return;
    }
    input.value = "";
    isBusy.value = true;
    problem.value = null;
    try {
      applyWorkers([await api.registerLicense(entry.id, token)]);
      closeDialog();
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
      input.focus();
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <Dialog title={`License ${entry.worker.value.name}`} onClose={closeDialog}>
      <form class="form" noValidate onSubmit={(event) => void submit(event)}>
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
            {problem.value ?? "Of your Cisco smart account. It is kept sealed, never shown, and thrown away when it was used."}
          </p>
        </div>
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={closeDialog}>
            Cancel
          </button>
          <button type="submit" class="button button-primary" aria-busy={isBusy.value}>
            {isBusy.value && <Spinner />}
            Register
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export function DeregisterDialog({ entry }: { entry: WorkerEntry }) {
  const { name } = entry.worker.value;
  return (
    <Dialog title={`Give back the license of ${name}?`} onClose={closeDialog}>
      <p class="dialog-text">
        It is free for other workers then. Until it is licensed again, <strong>CML on {name} starts no labs</strong> beyond
        what it allows without a license.
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
