/** End, extend and try again: always with a summary of what happens, for one session or many. */

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { closeDialog } from "../../app/commands";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import * as api from "../../app/lablet-api";
import { go, sessionHref } from "../../app/router";
import { type Refusal, sendAll } from "../../app/several";
import type { LabletSessionView } from "../../generated/api";
import { MAX_LENGTH } from "../../generated/rules";
import { now } from "../../kit/clock";
import { Dialog } from "../../kit/dialog";
import { formatCount } from "../../kit/format";
import { Spinner } from "../../kit/icons";
import { canAbandon, canEnd, canExtend, canRetry, endSummary, exceedsDefinition, extendedEnd, titleOf } from "./model";
import { formatMinutes, formatSlot } from "./slot";
import { applySessions, clearSelection, sessions } from "./store";

interface SessionsDialogProps {
  readonly ids: readonly string[];
}

function sessionsOf(ids: readonly string[], isWanted: (session: LabletSessionView) => boolean) {
  return ids
    .map((id) => sessions.value.get(id)?.session.value)
    .filter((session) => session !== undefined && isWanted(session)) as LabletSessionView[];
}

export function EndDialog({ ids }: SessionsDialogProps) {
  // What is shown is what is ended: the list does not change under the pointer.
  const chosen = useSignal(sessionsOf(ids, canEnd)).value;
  const [only] = chosen;
  const title = chosen.length === 1 && only !== undefined ? `End ${titleOf(only)}?` : `End ${chosen.length} sessions?`;
  return (
    <RequestDialog
      title={title}
      submitLabel={chosen.length === 1 ? "End session" : `End ${chosen.length} sessions`}
      isDangerous
      chosen={chosen}
      notDone="not ended"
      send={async (session) => applySessions([await api.endSession(session.id)])}
    >
      <p class="dialog-text">
        {endSummary(chosen)} <strong>What the labs hold is lost</strong> unless the definition collects it.
      </p>
      {chosen.length > 1 && <Names chosen={chosen} />}
    </RequestDialog>
  );
}

const EXTENSIONS: readonly number[] = [15, 30, 60, 120];

export function ExtendDialog({ ids }: SessionsDialogProps) {
  const chosen = useSignal(sessionsOf(ids, canExtend)).value;
  const minutes = useSignal(30);
  const [only] = chosen;
  const isOne = chosen.length === 1 && only !== undefined;
  return (
    <RequestDialog
      title={isOne ? `Extend ${titleOf(only)}` : `Extend ${chosen.length} sessions`}
      submitLabel="Extend"
      chosen={chosen}
      notDone="not extended"
      send={async (session) => {
        const end = extendedEnd(session, minutes.peek());
        if (end !== null) applySessions([await api.extendSession(session.id, end)]);
      }}
    >
      <fieldset class="field">
        <legend>Later end</legend>
        <div class="choices">
          {EXTENSIONS.map((choice) => (
            <label key={choice} class="choice">
              <input
                type="radio"
                name="extension"
                autofocus={choice === minutes.peek()}
                checked={minutes.value === choice}
                onChange={() => {
                  minutes.value = choice;
                }}
              />
              <span>{formatMinutes(choice)} more</span>
              {isOne && <NewEnd session={only} minutes={choice} />}
            </label>
          ))}
        </div>
      </fieldset>
      <Exceeding chosen={chosen} minutes={minutes} />
      {chosen.length > 1 && <Names chosen={chosen} />}
    </RequestDialog>
  );
}

function NewEnd({ session, minutes }: { session: LabletSessionView; minutes: number }) {
  const end = extendedEnd(session, minutes);
  if (session.timeslot === null || end === null) return null;
  return <span class="choice-time">{formatSlot({ ...session.timeslot, end }, now.peek())}</span>;
}

function Exceeding({ chosen, minutes }: { chosen: readonly LabletSessionView[]; minutes: Signal<number> }) {
  const count = chosen.filter((session) => exceedsDefinition(session, minutes.value)).length;
  return (
    <p class="field-note note-fixed" aria-live="polite">
      {count > 0 &&
        `Longer than the definition allows${chosen.length > 1 ? ` for ${count} of them` : ""}: only an operator may do that.`}
    </p>
  );
}

export function RetryDialog({ ids }: SessionsDialogProps) {
  const chosen = useSignal(sessionsOf(ids, canRetry)).value;
  const [only] = chosen;
  return (
    <RequestDialog
      title={only === undefined ? "Retry" : `Retry ${titleOf(only)}?`}
      submitLabel="Create the new session"
      chosen={chosen}
      notDone="not tried again"
      send={async (session) => {
        const created = await api.retrySession(session.id);
        applySessions([created]);
        go(sessionHref(created.id));
      }}
    >
      <p class="dialog-text">
        A new session with the same definition and owner is created and linked to this one, which stays for the record.
      </p>
    </RequestDialog>
  );
}

/** Only an admin is offered it. The reason goes to the audit log and to the history of the session. */
export function AbandonDialog({ ids }: SessionsDialogProps) {
  const chosen = useSignal(sessionsOf(ids, canAbandon)).value;
  const reason = useSignal("");
  const reasonProblem = useSignal<string | null>(null);
  const { problem, isBusy, send } = useSubmission();
  const [only] = chosen;

  function submit(): void {
    const given = reason.value.trim();
    reasonProblem.value = given === "" ? "Enter a reason." : null;
    if (only === undefined || given === "") return;
    void send(async () => applySessions([await api.abandonSession(only.id, given)]));
  }

  return (
    <FormDialog
      title={only === undefined ? "Abandon" : `Abandon the lab of ${titleOf(only)}?`}
      submitLabel="Abandon the lab"
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <p class="dialog-text">
        {only === undefined
          ? "This is not possible any more."
          : "The session ends now, although its lab may remain. The worker keeps the room and the ports until LCM finds the lab gone."}
      </p>
      <div class="field">
        <label for="abandon-reason">Reason</label>
        <input
          id="abandon-reason"
          class="input"
          maxLength={MAX_LENGTH.abandonReason}
          value={reason.value}
          aria-invalid={reasonProblem.value !== null}
          aria-describedby="abandon-problem"
          onInput={(event) => {
            reason.value = event.currentTarget.value;
          }}
        />
        <p id="abandon-problem" class="field-note" data-error="true" role="alert">
          {reasonProblem.value}
        </p>
      </div>
    </FormDialog>
  );
}

const MAX_NAMES = 6;

function Names({ chosen }: { chosen: readonly LabletSessionView[] }) {
  return (
    <ul class="dialog-names">
      {chosen.slice(0, MAX_NAMES).map((session) => (
        <li key={session.id}>{titleOf(session)}</li>
      ))}
      {chosen.length > MAX_NAMES && <li>and {formatCount(chosen.length - MAX_NAMES, "other")}</li>}
    </ul>
  );
}

interface RequestDialogProps {
  readonly title: string;
  readonly submitLabel: string;
  readonly isDangerous?: boolean;
  readonly chosen: readonly LabletSessionView[];
  /** "3 were not ended". */
  readonly notDone: string;
  readonly send: (session: LabletSessionView) => Promise<void>;
  readonly children: ComponentChildren;
}

function RequestDialog({ title, submitLabel, isDangerous, chosen, notDone, send, children }: RequestDialogProps) {
  const answered = useSignal<number | null>(null);
  const refusals = useSignal<readonly Refusal<LabletSessionView>[]>([]);
  const isBusy = answered.value !== null;

  async function submit(): Promise<void> {
    answered.value = 0;
    const refused = await sendAll(chosen, send, (count) => {
      answered.value = count;
    });
    answered.value = null;
    refusals.value = refused;
    if (refused.length > 0) return;
    clearSelection();
    closeDialog();
  }

  return (
    <Dialog title={title} onClose={closeDialog}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isBusy) void submit();
        }}
      >
        {chosen.length === 0 ? <p class="dialog-text">This is not possible any more.</p> : children}
        <Refusals refusals={refusals.value} total={chosen.length} notDone={notDone} />
        <div class="dialog-buttons">
          <button type="button" class="button" autofocus={isDangerous === true} onClick={closeDialog}>
            Cancel
          </button>
          <button
            type="submit"
            class={isDangerous === true ? "button button-danger" : "button button-primary"}
            aria-busy={isBusy}
            disabled={chosen.length === 0}
          >
            {isBusy && <Spinner />}
            {isBusy && chosen.length > 1 ? `${answered.value} of ${chosen.length}` : submitLabel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface RefusalsProps {
  readonly refusals: readonly Refusal<LabletSessionView>[];
  readonly total: number;
  readonly notDone: string;
}

function Refusals({ refusals, total, notDone }: RefusalsProps) {
  const [first] = refusals;
  if (first === undefined) return null;
  if (total === 1) {
    return (
      <p class="form-problem" role="alert">
        {first.message}
      </p>
    );
  }
  return (
    <div class="form-problem" role="alert">
      <p>
        {refusals.length} of {total} were {notDone}:
      </p>
      <ul>
        {refusals.slice(0, MAX_NAMES).map(({ item, message }) => (
          <li key={item.id}>
            {titleOf(item)}: {message}
          </li>
        ))}
      </ul>
    </div>
  );
}
