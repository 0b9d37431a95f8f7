/**
 * Everything that can be done to the open worker, at the foot of its panel. What arrives live makes the panel
 * longer or shorter and would move a button away from under the pointer; here nothing moves, and what cannot
 * be done now keeps its place and says why.
 */

import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import * as api from "../api";
import { now } from "../clock";
import { ask, change, openDialog } from "../commands";
import type { Action } from "../generated/api";
import { holdNow, mayBePaused } from "../idle";
import { canDeregister, canRegister } from "../license";
import { ACTION_LABEL, actionObstacle, panelActions } from "../model";
import { denialFor } from "../session";
import type { WorkerEntry } from "../store";
import { Glyph, Spinner } from "./icons";

export function WorkerControls({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  if (worker.status === "terminated") return null;
  return (
    <div class="controls" role="group" aria-label="Controls">
      <div class="controls-row controls-life">
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

function LifeButton({ entry, action }: { entry: WorkerEntry; action: Action }) {
  const obstacle = denialFor(action) ?? actionObstacle(entry.worker.value, action);
  const pending = entry.pending.value;
  return (
    <button
      type="button"
      class="control"
      data-action={action}
      aria-busy={pending === action}
      title={obstacle ?? ACTION_LABEL[action]}
      disabled={pending !== null || obstacle !== null}
      onClick={() => ask(entry, action)}
    >
      {pending === action ? <Spinner /> : <Glyph name={action} />}
      {ACTION_LABEL[action]}
    </button>
  );
}

const CANNOT_PAUSE = "Only a worker that runs, and should, is ever paused.";

function pausingObstacle(entry: WorkerEntry): string | null {
  return denialFor("hold") ?? (mayBePaused(entry.worker.value) ? null : CANNOT_PAUSE);
}

function HoldButton({ entry }: { entry: WorkerEntry }) {
  const obstacle = pausingObstacle(entry);
  return (
    <button
      type="button"
      class="control"
      disabled={obstacle !== null}
      title={obstacle ?? ""}
      onClick={() => {
        openDialog.value = { kind: "hold", entry };
      }}
    >
      Keep running until…
    </button>
  );
}

function EndHoldButton({ entry }: { entry: WorkerEntry }) {
  // A hold ends without an event of its own.
  const isHeld = useComputed(() => holdNow(entry.worker.value, now.value) !== null);
  const isBusy = useSignal(false);
  const obstacle = pausingObstacle(entry) ?? (isHeld.value ? null : "Nothing holds it.");
  async function end(): Promise<void> {
    isBusy.value = true;
    await change(entry, "Ending the hold of", api.endHold(entry.id));
    isBusy.value = false;
  }
  return (
    <button
      type="button"
      class="control"
      disabled={obstacle !== null || isBusy.value}
      title={obstacle ?? ""}
      aria-busy={isBusy.value}
      onClick={() => void end()}
    >
      End hold
    </button>
  );
}

function AutoPauseSwitch({ entry }: { entry: WorkerEntry }) {
  const obstacle = pausingObstacle(entry);
  const wish = useSignal<boolean | null>(null);
  async function flip(isOn: boolean): Promise<void> {
    wish.value = isOn;
    await change(entry, `Turning auto-pause ${isOn ? "on" : "off"} for`, api.switchAutoPause(entry.id, isOn));
    wish.value = null;
  }
  return (
    <label class="switch" title={obstacle ?? "Pause it when nobody uses it"}>
      <input
        type="checkbox"
        role="switch"
        checked={wish.value ?? entry.worker.value.is_idle_detection_enabled}
        disabled={obstacle !== null || wish.value !== null}
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
  const obstacle = denialFor("license") ?? (isFree ? null : "Its license is being changed.");
  return (
    <button
      key={kind}
      type="button"
      class="control"
      disabled={obstacle !== null}
      title={obstacle ?? ""}
      onClick={() => {
        openDialog.value = { kind, entry };
      }}
    >
      {kind === "register" ? "Register…" : "Give back…"}
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
  const refusal = denialFor(kind);
  return (
    <button
      type="button"
      class="control"
      disabled={refusal !== null}
      title={refusal ?? ""}
      aria-label={name}
      onClick={() => {
        openDialog.value = { kind, entry };
      }}
    >
      {children}
    </button>
  );
}
