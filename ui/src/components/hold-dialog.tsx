import { type Signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import * as api from "../api";
import { now } from "../clock";
import { closeDialog } from "../commands";
import { formatUntil } from "../format";
import { type HoldChoice, holdChoices, ownTimeDefault, ownTimeProblem } from "../idle";
import { applyWorkers, type WorkerEntry } from "../store";
import { Dialog } from "./dialog";
import { Spinner } from "./icons";

type Chosen = HoldChoice["id"] | "own";

export function HoldDialog({ entry }: { entry: WorkerEntry }) {
  const ownField = useRef<HTMLInputElement>(null);
  const chosen = useSignal<Chosen>("hour");
  const ownTime = useSignal(ownTimeDefault(now.peek()));
  const reason = useSignal(entry.worker.peek().hold?.reason ?? "");
  const timeProblem = useSignal<string | null>(null);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (isBusy.value) return;
    const choice = holdChoices(now.peek()).find(({ id }) => id === chosen.value);
    timeProblem.value = choice === undefined ? ownTimeProblem(ownTime.value, now.peek()) : null;
    if (timeProblem.value !== null) {
      ownField.current?.focus();
      return;
    }
    isBusy.value = true;
    problem.value = null;
    try {
      const until = new Date(choice?.until ?? ownTime.value);
      applyWorkers([await api.hold(entry.id, until, reason.value.trim())]);
      closeDialog();
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <Dialog title={`Keep ${entry.worker.value.name} running`} onClose={closeDialog}>
      <form class="form" noValidate onSubmit={(event) => void submit(event)}>
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
        {problem.value !== null && (
          <p class="form-problem" role="alert">
            {problem.value}
          </p>
        )}
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={closeDialog}>
            Cancel
          </button>
          <button type="submit" class="button button-primary" aria-busy={isBusy.value}>
            {isBusy.value && <Spinner />}
            Keep running
          </button>
        </div>
      </form>
    </Dialog>
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
