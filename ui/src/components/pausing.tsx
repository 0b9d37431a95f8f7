/** When the worker pauses, and what a person can do about it. */

import { useComputed, useSignal } from "@preact/signals";
import { useCallback } from "preact/hooks";
import * as api from "../api";
import { now } from "../clock";
import { change, openDialog } from "../commands";
import { type Explanation, judgementOf } from "../explain";
import { formatExact } from "../format";
import { holdNow, idleSign, mayBePaused, pauseSentence } from "../idle";
import type { Hold, WorkerView } from "../model";
import { refusalFor } from "../session";
import type { WorkerEntry } from "../store";
import { Glyph, Spinner } from "./icons";
import { Ago, Ticking } from "./time";

export function PausingSection({ entry, explanation }: { entry: WorkerEntry; explanation: Explanation | null }) {
  const worker = entry.worker.value;
  // A hold ends without an event of its own.
  const isHeld = useComputed(() => holdNow(entry.worker.value, now.value) !== null);
  if (!mayBePaused(worker)) return null;
  return (
    <section class="panel-section" aria-label="Pausing">
      <div class="section-head">
        <h3>Pausing</h3>
        <AutoPauseSwitch entry={entry} />
      </div>
      <div class="box">
        <Outlook worker={worker} explanation={explanation} />
        {isHeld.value && worker.hold !== null && <HoldNote hold={worker.hold} />}
        <p class="box-note">
          {worker.last_activity_at === null ? (
            "Nobody has used it yet."
          ) : (
            <>
              Last used <Ago at={worker.last_activity_at} />.
            </>
          )}
        </p>
        <HoldButtons entry={entry} isHeld={isHeld.value} />
      </div>
    </section>
  );
}

function Outlook({ worker, explanation }: { worker: WorkerView; explanation: Explanation | null }) {
  const text = useCallback(
    (at: number) => pauseSentence(worker, judgementOf(worker, explanation), at),
    [worker, explanation],
  );
  return (
    <p class="outlook" data-testid="outlook">
      <Ticking text={text} />
    </p>
  );
}

function HoldNote({ hold }: { hold: Hold }) {
  return (
    <p class="hold-note" title={`Until ${formatExact(hold.until)}`}>
      <Glyph name="held" />
      <span>
        Held by <strong>{hold.by}</strong>
        {hold.reason !== "" && <>: {hold.reason}</>}
      </span>
    </p>
  );
}

function AutoPauseSwitch({ entry }: { entry: WorkerEntry }) {
  const refusal = refusalFor("hold");
  const wish = useSignal<boolean | null>(null);
  async function flip(isOn: boolean): Promise<void> {
    wish.value = isOn;
    await change(entry, `Turning auto-pause ${isOn ? "on" : "off"} for`, api.switchAutoPause(entry.id, isOn));
    wish.value = null;
  }
  return (
    <label class="switch" title={refusal ?? "Pause it when nobody uses it"}>
      <input
        type="checkbox"
        role="switch"
        checked={wish.value ?? entry.worker.value.is_idle_detection_enabled}
        disabled={refusal !== null || wish.value !== null}
        onChange={(event) => void flip(event.currentTarget.checked)}
      />
      Auto-pause
    </label>
  );
}

function HoldButtons({ entry, isHeld }: { entry: WorkerEntry; isHeld: boolean }) {
  const refusal = refusalFor("hold");
  const isBusy = useSignal(false);
  async function end(): Promise<void> {
    isBusy.value = true;
    await change(entry, "Ending the hold of", api.endHold(entry.id));
    isBusy.value = false;
  }
  return (
    <div class="box-buttons">
      <button
        type="button"
        class="button button-small"
        disabled={refusal !== null}
        title={refusal ?? ""}
        onClick={() => {
          openDialog.value = { kind: "hold", entry };
        }}
      >
        {isHeld ? "Change…" : "Keep running until…"}
      </button>
      {isHeld && (
        <button
          type="button"
          class="button button-small"
          disabled={refusal !== null || isBusy.value}
          title={refusal ?? ""}
          aria-busy={isBusy.value}
          onClick={() => void end()}
        >
          {isBusy.value && <Spinner />}
          End hold
        </button>
      )}
    </div>
  );
}

const SIGN_MEANING = {
  held: "Kept running by a hold; time left",
  pausing: "Pauses unless used; time left",
} as const;

/** In a row: a hold, or a pause that is near. */
export function PauseSign({ entry }: { entry: WorkerEntry }) {
  // Words, not objects: a row is drawn again only when they change.
  const kind = useComputed(() => idleSign(entry.worker.value, now.value)?.kind ?? null);
  const text = useComputed(() => idleSign(entry.worker.value, now.value)?.text ?? "");
  if (kind.value === null) return null;
  return (
    <span class="pause-sign" data-sign={kind.value} data-tone={kind.value === "held" ? "blue" : "orange"} title={SIGN_MEANING[kind.value]}>
      <Glyph name={kind.value} />
      <span class="visually-hidden">{SIGN_MEANING[kind.value]}</span>
      {text}
    </span>
  );
}
