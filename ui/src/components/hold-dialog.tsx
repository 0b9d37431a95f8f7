import { type Signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import * as api from "../api";
import { now } from "../clock";
import { formatUntil } from "../format";
import { type HoldChoice, holdChoices, ownTimeDefault, ownTimeProblem } from "../idle";
import { applyWorkers, type WorkerEntry } from "../store";
import { FormDialog, useSubmission } from "./form-dialog";

type Chosen = HoldChoice["id"] | "own";

export function HoldDialog({ entry }: { entry: WorkerEntry }) {
  const ownField = useRef<HTMLInputElement>(null);
  const chosen = useSignal<Chosen>("hour");
  const ownTime = useSignal(ownTimeDefault(now.peek()));
  const reason = useSignal(entry.worker.peek().hold?.reason ?? "");
  const timeProblem = useSignal<string | null>(null);
  const { problem, isBusy, send } = useSubmission();

  function submit(): void {
    const choice = holdChoices(now.peek()).find(({ id }) => id === chosen.value);
    timeProblem.value = choice === undefined ? ownTimeProblem(ownTime.value, now.peek()) : null;
    if (timeProblem.value !== null) {
      ownField.current?.focus();
      return;
    }
    void send(async () => {
      const until = new Date(choice?.until ?? ownTime.value);
      applyWorkers([await api.hold(entry.id, until, reason.value.trim())]);
    });
  }

  return (
    <FormDialog
      title={`Keep ${entry.worker.value.name} running`}
      submitLabel="Keep running"
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <fieldset class="field">
        <legend>Until</legend>
        <div class="choices">
          <QuickChoices chosen={chosen} />
          <div class="choice choice-own">
            <label class="choice-label">
              <input
                type="radio"
                name="until"
                checked={chosen.value === "own"}
                onChange={() => {
                  chosen.value = "own";
                }}
              />
              Own time
            </label>
            <input
              ref={ownField}
              class="input"
              type="datetime-local"
              aria-label="Day and time"
              value={ownTime.value}
              aria-invalid={timeProblem.value !== null}
              aria-describedby="hold-time-note"
              onInput={(event) => {
                chosen.value = "own";
                ownTime.value = event.currentTarget.value;
                timeProblem.value = null;
              }}
            />
          </div>
        </div>
        <p id="hold-time-note" class="field-note" data-error={timeProblem.value !== null} aria-live="polite">
          {timeProblem.value ?? "Nothing pauses it before then. People can still stop it."}
        </p>
      </fieldset>
      <div class="field">
        <label for="hold-reason">Reason</label>
        <input
          id="hold-reason"
          class="input"
          maxLength={200}
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

/** They move on with the clock, and nothing else of the dialog with them. */
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
