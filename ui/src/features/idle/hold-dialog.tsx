import { type Signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import * as api from "../../app/api";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { sendAll } from "../../app/several";
import { applyWorkers, type WorkerEntry } from "../../app/store";
import { type Done, offerUndoOfHold } from "../../app/undo";
import { MAX_LENGTH } from "../../generated/rules";
import { now } from "../../kit/clock";
import { formatCount, formatUntil } from "../../kit/format";
import { planOf } from "../fleet/bulk";
import { Skipped } from "../fleet/bulk-dialog";
import { clearSelection } from "../fleet/selection";
import { customTimeDefault, customTimeProblem, type HoldChoice, holdChoices } from "./idle";

type Chosen = HoldChoice["id"] | "custom";

export function HoldDialog({ entries }: { entries: readonly WorkerEntry[] }) {
  const plan = useSignal(
    planOf(
      entries.map(({ worker }) => worker.peek()),
      "hold",
    ),
  ).value;
  const [only] = plan.changed;
  const isOne = entries.length === 1 && only !== undefined;
  const customField = useRef<HTMLInputElement>(null);
  const chosen = useSignal<Chosen>("hour");
  const customTime = useSignal(customTimeDefault(now.peek()));
  const reason = useSignal(isOne ? (only.hold?.reason ?? "") : "");
  const timeProblem = useSignal<string | null>(null);
  const { problem, isBusy, send } = useSubmission();

  function submit(): void {
    const choice = holdChoices(now.peek()).find(({ id }) => id === chosen.value);
    timeProblem.value = choice === undefined ? customTimeProblem(customTime.value, now.peek()) : null;
    if (timeProblem.value !== null) {
      customField.current?.focus();
      return;
    }
    void send(async () => {
      const until = new Date(choice?.until ?? customTime.value).toISOString();
      const done: Done[] = [];
      const refusals = await sendAll(plan.changed, async (before) => {
        const answer = await api.hold(before.id, until, reason.value.trim());
        applyWorkers([answer]);
        done.push({ before, answer });
      });
      if (done.length > 0) offerUndoOfHold("Hold set", done);
      const [first] = refusals;
      if (first !== undefined)
        throw new Error(isOne ? first.message : `${refusals.length} not held; ${first.item.name}: ${first.message}`);
      clearSelection();
    });
  }

  return (
    <FormDialog
      title={isOne ? `Hold ${only.name}` : `Hold ${formatCount(plan.changed.length, "worker")}`}
      submitLabel="Set hold"
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <p class="dialog-text">
        A pause powers off the running nodes, and configurations that were not extracted are lost. Typing in a console
        or over SSH is not seen by LCM: hold the worker for work that only does that.
      </p>
      <fieldset class="field">
        <legend>Until</legend>
        <div class="choices">
          <QuickChoices chosen={chosen} />
          <div class="choice choice-own">
            <label class="choice-label">
              <input
                type="radio"
                name="until"
                checked={chosen.value === "custom"}
                onChange={() => {
                  chosen.value = "custom";
                }}
              />
              Custom time
            </label>
            <input
              ref={customField}
              class="input"
              type="datetime-local"
              aria-label="Day and time"
              value={customTime.value}
              aria-invalid={timeProblem.value !== null}
              aria-describedby="hold-time-note"
              onInput={(event) => {
                chosen.value = "custom";
                customTime.value = event.currentTarget.value;
                timeProblem.value = null;
              }}
            />
          </div>
        </div>
        <p id="hold-time-note" class="field-note" data-error={timeProblem.value !== null} aria-live="polite">
          {timeProblem.value ?? "The worker is not paused before then. Users can still stop it."}
        </p>
      </fieldset>
      <Skipped plan={plan} />
      <div class="field">
        <label for="hold-reason">Reason</label>
        <input
          id="hold-reason"
          class="input"
          maxLength={MAX_LENGTH.holdReason}
          placeholder="Exam, demonstration…"
          autocomplete="off"
          value={reason.value}
          onInput={(event) => {
            reason.value = event.currentTarget.value;
          }}
        />
      </div>
    </FormDialog>
  );
}

/** Rendered again with every tick of the clock; the other parts of the dialog are not. */
function QuickChoices({ chosen }: { chosen: Signal<Chosen> }) {
  return (
    <>
      {holdChoices(now.value).map((choice, index) => (
        <label key={choice.id} class="choice">
          <input
            type="radio"
            name="until"
            autofocus={index === 0}
            checked={chosen.value === choice.id}
            onChange={() => {
              chosen.value = choice.id;
            }}
          />
          <span>{choice.label}</span>
          <span class="choice-time">{formatUntil(choice.until, now.value)}</span>
        </label>
      ))}
    </>
  );
}
