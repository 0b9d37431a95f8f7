/**
 * Every action on the open worker, at the foot of its panel. Live updates make the panel longer or shorter and
 * would move a button away from under the pointer; here nothing moves, and an action that is not possible now
 * stays in place, disabled, with the reason as its tooltip.
 */

import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import * as api from "../../app/api";
import { applyChange, openDialog, requestAction } from "../../app/commands";
import { cmlPlace, denialFor } from "../../app/session";
import type { WorkerEntry } from "../../app/store";
import { offerUndoOfHold } from "../../app/undo";
import type { Action } from "../../generated/api";
import { now } from "../../kit/clock";
import { Glyph, Spinner } from "../../kit/icons";
import { activeHold, canBePaused, NOT_PAUSABLE } from "../idle/idle";
import { canDeregister, canRegister } from "../license/license";
import { cmlClosedReason, cmlPage } from "./links";
import { ACTION_LABEL, actionDisabledReason, actionHint, panelActions } from "./model";

export function WorkerControls({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  if (worker.status === "terminated") return null;
  return (
    <div class="controls" role="group" aria-label="Controls">
      <div class="controls-row controls-life">
        <OpenCml entry={entry} />
        {panelActions(worker).map((action) => (
          <LifeButton key={action} entry={entry} action={action} />
        ))}
      </div>
      <div class="controls-row controls-pausing">
        <HoldButton entry={entry} />
        <EndHoldButton entry={entry} />
        <AutoPauseSwitch entry={entry} />
      </div>
      <div class="controls-row controls-settings">
        <LicenseButton entry={entry} />
        <EditButton entry={entry} kind="cml-login" name="Edit CML login">
          CML login…
        </EditButton>
        <EditButton entry={entry} kind="tags" name="Edit tags">
          Tags…
        </EditButton>
      </div>
    </div>
  );
}

/** Always there, so that nothing moves when CML becomes ready. */
function OpenCml({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const place = cmlPlace.value;
  const href = cmlPage(worker, place);
  const label = (
    <>
      Open CML <Glyph name="external" />
    </>
  );
  if (href === null)
    return (
      <button type="button" class="control" disabled title={cmlClosedReason(worker, place) ?? ""}>
        {label}
      </button>
    );
  return (
    <a class="control" href={href} title="Open CML in a new tab" target="_blank" rel="noreferrer">
      {label}
    </a>
  );
}

function LifeButton({ entry, action }: { entry: WorkerEntry; action: Action }) {
  const disabledReason = denialFor(action) ?? actionDisabledReason(entry.worker.value, action);
  const pending = entry.pending.value;
  return (
    <button
      type="button"
      class="control"
      data-action={action}
      aria-busy={pending === action}
      title={disabledReason ?? actionHint(action)}
      disabled={pending !== null || disabledReason !== null}
      onClick={() => requestAction(entry, action)}
    >
      {pending === action ? <Spinner /> : <Glyph name={action} />}
      {ACTION_LABEL[action]}
    </button>
  );
}

function pauseDisabledReason(entry: WorkerEntry): string | null {
  return denialFor("hold") ?? (canBePaused(entry.worker.value) ? null : NOT_PAUSABLE);
}

function HoldButton({ entry }: { entry: WorkerEntry }) {
  const disabledReason = pauseDisabledReason(entry);
  return (
    <button
      type="button"
      class="control"
      disabled={disabledReason !== null}
      title={disabledReason ?? ""}
      onClick={() => {
        openDialog.value = { kind: "hold", entries: [entry] };
      }}
    >
      Hold until…
    </button>
  );
}

function EndHoldButton({ entry }: { entry: WorkerEntry }) {
  // No event announces the end of a hold.
  const isHeld = useComputed(() => activeHold(entry.worker.value, now.value) !== null);
  const isBusy = useSignal(false);
  const disabledReason = pauseDisabledReason(entry) ?? (isHeld.value ? null : "No hold is set.");
  async function end(): Promise<void> {
    isBusy.value = true;
    const before = entry.worker.peek();
    const isEnded = await applyChange(entry, "Ending the hold of", api.endHold(entry.id));
    if (isEnded) offerUndoOfHold("Hold ended", [{ before, answer: entry.worker.peek() }]);
    isBusy.value = false;
  }
  return (
    <button
      type="button"
      class="control"
      disabled={disabledReason !== null || isBusy.value}
      title={disabledReason ?? ""}
      aria-busy={isBusy.value}
      onClick={() => void end()}
    >
      End hold
    </button>
  );
}

function AutoPauseSwitch({ entry }: { entry: WorkerEntry }) {
  const disabledReason = pauseDisabledReason(entry);
  const requested = useSignal<boolean | null>(null);
  async function flip(isOn: boolean): Promise<void> {
    requested.value = isOn;
    await applyChange(entry, `Turning auto-pause ${isOn ? "on" : "off"} for`, api.switchAutoPause(entry.id, isOn));
    requested.value = null;
  }
  return (
    <label class="switch" title={disabledReason ?? "Pause the worker when it is idle"}>
      <input
        type="checkbox"
        role="switch"
        checked={requested.value ?? entry.worker.value.is_idle_detection_enabled}
        disabled={disabledReason !== null || requested.value !== null}
        onChange={(event) => void flip(event.currentTarget.checked)}
      />
      Auto-pause
    </label>
  );
}

function LicenseButton({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const kind = worker.license.status === "registered" ? "deregister" : "register";
  const isFree = kind === "register" ? canRegister(worker) : canDeregister(worker);
  const disabledReason = denialFor("license") ?? (isFree ? null : "A license operation is pending.");
  return (
    <button
      key={kind}
      type="button"
      class="control"
      disabled={disabledReason !== null}
      title={disabledReason ?? ""}
      onClick={() => {
        openDialog.value = { kind, entry };
      }}
    >
      {kind === "register" ? "Register…" : "Deregister…"}
    </button>
  );
}

interface EditButtonProps {
  readonly entry: WorkerEntry;
  readonly kind: "cml-login" | "tags";
  readonly name: string;
  readonly children: ComponentChildren;
}

function EditButton({ entry, kind, name, children }: EditButtonProps) {
  const denial = denialFor(kind);
  return (
    <button
      type="button"
      class="control"
      disabled={denial !== null}
      title={denial ?? ""}
      aria-label={name}
      onClick={() => {
        openDialog.value = { kind, entry };
      }}
    >
      {children}
    </button>
  );
}
