/** The fleet's license token: whether there is one, and how it is set or removed. Never which. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { closeDialog, openDialog } from "../commands";
import { hasFleetToken, loadFleetToken, removeFleetToken, setFleetToken } from "../fleet-license";
import { keepFresh } from "../refresh";
import { refusalFor } from "../session";
import { Dialog } from "./dialog";
import { Glyph, Spinner } from "./icons";

const PACE = { everyMs: 300_000, soonMs: 30_000 };

export function FleetLicense() {
  useEffect(() => keepFresh(() => void loadFleetToken(), PACE), []);
  const isBusy = useSignal(false);
  const hasToken = hasFleetToken.value;
  if (hasToken === null) return null;
  const refusal = refusalFor("license");

  async function remove(): Promise<void> {
    isBusy.value = true;
    await removeFleetToken();
    isBusy.value = false;
  }

  return (
    <section class="setting" aria-label="License of the fleet">
      <Glyph name="license" />
      <p>
        <strong>{hasToken ? "A license token is set." : "No license token is set."}</strong>{" "}
        {hasToken
          ? "Workers that are meant to be licensed register with it by themselves."
          : "Workers are licensed one by one until the fleet has one."}
      </p>
      <div class="setting-buttons">
        <button
          type="button"
          class="button button-small"
          disabled={refusal !== null}
          title={refusal ?? ""}
          onClick={() => {
            openDialog.value = { kind: "fleet-license" };
          }}
        >
          {hasToken ? "Replace token…" : "Set token…"}
        </button>
        {hasToken && (
          <button
            type="button"
            class="button button-small"
            disabled={refusal !== null || isBusy.value}
            title={refusal ?? "Licenses that were registered with it stay."}
            aria-busy={isBusy.value}
            onClick={() => void remove()}
          >
            {isBusy.value && <Spinner />}
            Remove token
          </button>
        )}
      </div>
    </section>
  );
}

export function FleetLicenseDialog() {
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
      await setFleetToken(token);
      closeDialog();
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
      input.focus();
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <Dialog title="License token of the fleet" onClose={closeDialog}>
      <form class="form" noValidate onSubmit={(event) => void submit(event)}>
        <div class="field">
          <label for="fleet-license-token">Registration token</label>
          <input
            id="fleet-license-token"
            ref={field}
            class="input mono"
            type="password"
            autocomplete="off"
            autofocus
            maxLength={256}
            aria-invalid={problem.value !== null}
            aria-describedby="fleet-license-note"
          />
          <p id="fleet-license-note" class="field-note" data-error={problem.value !== null} aria-live="polite">
            {problem.value ?? "Of your Cisco smart account. It is kept sealed and never shown again, to nobody."}
          </p>
        </div>
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={closeDialog}>
            Cancel
          </button>
          <button type="submit" class="button button-primary" aria-busy={isBusy.value}>
            {isBusy.value && <Spinner />}
            Set token
          </button>
        </div>
      </form>
    </Dialog>
  );
}
