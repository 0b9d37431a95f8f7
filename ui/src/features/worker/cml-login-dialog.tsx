import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import * as api from "../../app/api";
import { applyChange, closeDialog } from "../../app/commands";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { applyWorkers, type WorkerEntry } from "../../app/store";
import { MAX_LENGTH } from "../../generated/rules";

export function CmlLoginDialog({ entry }: { entry: WorkerEntry }) {
  const username = useSignal(entry.worker.peek().cml_username ?? "admin");
  const usernameField = useRef<HTMLInputElement>(null);
  // The password is a secret: it stays in its field, in no signal, and the request clears the field.
  const passwordField = useRef<HTMLInputElement>(null);
  const empty = useSignal<"username" | "password" | null>(null);
  const { problem, isBusy, send } = useSubmission();
  const worker = entry.worker.value;

  async function submit(): Promise<void> {
    const input = passwordField.current;
    if (input === null) return;
    const name = username.value.trim();
    const password = input.value;
    if (name === "") {
      empty.value = "username";
      problem.value = "Enter a user name.";
      usernameField.current?.focus();
      return;
    }
    if (password === "") {
      empty.value = "password";
      problem.value = "Enter the password of this user.";
      input.focus();
      return;
    }
    input.value = "";
    if (!(await send(async () => applyWorkers([await api.setCmlLogin(entry.id, name, password)])))) input.focus();
  }

  function clearProblem(): void {
    empty.value = null;
    problem.value = null;
  }

  return (
    <FormDialog
      title={`CML login of ${worker.name}`}
      submitLabel="Save login"
      isBusy={isBusy}
      problem={problem}
      onSubmit={() => void submit()}
      otherButton={worker.cml_username !== null && <UseFleetLogin entry={entry} isDisabled={isBusy.value} />}
    >
      <div class="field">
        <label for="cml-username">User name</label>
        <input
          id="cml-username"
          ref={usernameField}
          class="input"
          autocomplete="off"
          autofocus
          spellcheck={false}
          maxLength={MAX_LENGTH.username}
          value={username.value}
          aria-invalid={empty.value === "username"}
          onInput={(event) => {
            username.value = event.currentTarget.value;
            clearProblem();
          }}
        />
      </div>
      <div class="field">
        <label for="cml-password">Password</label>
        <input
          id="cml-password"
          ref={passwordField}
          class="input mono"
          type="password"
          autocomplete="off"
          maxLength={MAX_LENGTH.password}
          aria-invalid={empty.value === "password"}
          aria-describedby="cml-password-note"
          onInput={clearProblem}
        />
        <p id="cml-password-note" class="field-note">
          It is stored encrypted and never shown again. LCM uses the login within 30 seconds.
        </p>
      </div>
    </FormDialog>
  );
}

function UseFleetLogin({ entry, isDisabled }: { entry: WorkerEntry; isDisabled: boolean }) {
  return (
    <button
      type="button"
      class="button"
      disabled={isDisabled}
      onClick={() => {
        closeDialog();
        void applyChange(entry, "Removing the CML login of", api.removeCmlLogin(entry.id));
      }}
    >
      Use the fleet's login
    </button>
  );
}
