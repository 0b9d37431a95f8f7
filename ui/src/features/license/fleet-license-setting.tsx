/** The fleet's license token: whether one is set, and buttons to set or remove it. Its value is never shown. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { openDialog } from "../../app/commands";
import { startPolling } from "../../app/polling";
import { denialFor } from "../../app/session";
import { Glyph, Spinner } from "../../kit/icons";
import { hasFleetToken, loadFleetToken, removeFleetToken } from "./fleet-license";

const INTERVAL = { everyMs: 300_000, afterChangeMs: 30_000 };

export function FleetLicense() {
  useEffect(() => startPolling(() => void loadFleetToken(), INTERVAL), []);
  const isBusy = useSignal(false);
  const hasToken = hasFleetToken.value;
  if (hasToken === null) return null;
  const denial = denialFor("license");

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
          ? "Workers that are declared as licensed register with it automatically."
          : "Each worker needs a token of its own until one is set."}
      </p>
      <div class="setting-buttons">
        <button
          type="button"
          class="button button-small"
          disabled={denial !== null}
          title={denial ?? ""}
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
            disabled={denial !== null || isBusy.value}
            title={denial ?? "Licenses that were registered with it stay registered."}
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
