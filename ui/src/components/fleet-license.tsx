/** The fleet's license token: whether there is one, and buttons to set or remove it. Never which. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { openDialog } from "../commands";
import { hasFleetToken, loadFleetToken, removeFleetToken } from "../fleet-license";
import { keepFresh } from "../refresh";
import { denialFor } from "../session";
import { Glyph, Spinner } from "./icons";

const PACE = { everyMs: 300_000, soonMs: 30_000 };

export function FleetLicense() {
  useEffect(() => keepFresh(() => void loadFleetToken(), PACE), []);
  const isBusy = useSignal(false);
  const hasToken = hasFleetToken.value;
  if (hasToken === null) return null;
  const refusal = denialFor("license");

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
