/**
 * A new session, or one for every seat of a class: one screen. The form is on the left, what would happen on the
 * right. A preview that arrives changes its own card only, and not while the pointer or the focus is inside.
 */

import { type Signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import * as api from "../../app/lablet-api";
import { go, query, sessionHref, sessionsHref } from "../../app/router";
import { denialFor, session as signedIn } from "../../app/session";
import { regions } from "../../app/store";
import type { LabletDefinitionView, Timeslot } from "../../generated/api";
import { MAX_SEATS } from "../../generated/rules";
import { now } from "../../kit/clock";
import { Spinner } from "../../kit/icons";
import { queryOf } from "../lablets/model";
import { formatMinutes, formatSlot, LOCAL_ZONE, minutesOf, nextHalfHour, toLocalInput } from "../lablets/slot";
import { applySessions, filter } from "../lablets/store";
import {
  AttemptKeys,
  classBody,
  type Draft,
  type Field,
  isClass,
  lengthsUpTo,
  type Problems,
  problemsOf,
  problemsOfError,
  seatsOf,
  sessionBody,
  timeslotOf,
} from "./booking";
import { DefinitionPicker } from "./definition-picker";
import { createdDefinitionId, definitions, loadDefinitions } from "./definitions";
import { Preview, usePreview, VerdictChip } from "./preview";

/** A worker takes about this long to come up, so that a default start is one that can be met. */
const DEFAULT_AHEAD_MINUTES = 45;

const NO_PROBLEMS: Problems = new Map();

function newDraft(): Draft {
  return {
    definitionId: query.peek().get("definition") ?? "",
    seats: "1",
    className: "",
    owners: "",
    isAllOrNothing: false,
    isBooked: false,
    start: toLocalInput(nextHalfHour(now.peek(), DEFAULT_AHEAD_MINUTES)),
    minutes: 60,
    region: "",
    reservation: "",
  };
}

export function NewSessionPage() {
  return (
    <>
      <a class="back-link" href={sessionsHref(queryOf(filter.value))}>
        ← Sessions
      </a>
      <div class="page-head">
        <h1>New session or class</h1>
      </div>
      <Booking />
    </>
  );
}

function Booking() {
  const draft = useSignal(newDraft());
  const problems = useSignal<Problems>(NO_PROBLEMS);
  const rest = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const form = useRef<HTMLFormElement>(null);
  const keys = useMemo(() => new AttemptKeys(), []);
  const preview = usePreview(draft);
  const definition = useComputed(() => definitions.value?.find(({ id }) => id === draft.value.definitionId) ?? null);

  useEffect(() => void loadDefinitions(), []);
  useSignalEffect(() => {
    const created = createdDefinitionId.value;
    if (created === null) return;
    createdDefinitionId.value = null;
    change({ definitionId: created });
  });

  /** An error goes with the first change of its field. */
  function change(part: Partial<Draft>, field?: Field): void {
    draft.value = clampedTo({ ...draft.peek(), ...part });
    rest.value = null;
    const left = new Map(problems.peek());
    if (field !== undefined && left.delete(field)) problems.value = left;
  }

  function show(found: Problems): void {
    problems.value = found;
    const [first] = found.keys();
    window.requestAnimationFrame(() => {
      form.current?.querySelector<HTMLElement>(`[data-field="${first}"] :is(input, select, textarea)`)?.focus();
    });
  }

  async function submit(): Promise<void> {
    const wrong = problemsOf(draft.peek());
    if (wrong.size > 0) return show(wrong);
    isBusy.value = true;
    rest.value = null;
    try {
      await send(draft.peek(), keys);
    } catch (error) {
      const { fields, rest: other } = problemsOfError(error);
      rest.value = other;
      show(fields);
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <div class="booking">
      <form
        ref={form}
        class="card booking-form form"
        aria-label="New session"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (!isBusy.value) void submit();
        }}
      >
        <DefinitionField draft={draft} problems={problems} change={change} />
        <SeatsField draft={draft} problems={problems} change={change} />
        {isClass(draft.value) && <ClassFields draft={draft} problems={problems} change={change} />}
        <WhenField draft={draft} problems={problems} change={change} definition={definition.value} />
        <MoreFields draft={draft} problems={problems} change={change} />
        <footer class="booking-foot">
          {rest.value !== null && (
            <p class="form-problem" role="alert">
              {rest.value}
            </p>
          )}
          <div class="booking-buttons">
            <VerdictChip preview={preview} />
            <SubmitButton draft={draft} isBusy={isBusy} />
          </div>
        </footer>
      </form>
      <Preview preview={preview} onChoose={(slot) => change(slotPart(slot), "when")} />
    </div>
  );
}

function slotPart(slot: Timeslot): Partial<Draft> {
  return { isBooked: true, start: toLocalInput(Date.parse(slot.start)), minutes: minutesOf(slot) };
}

/** The definition says how long a timeslot may be. */
function clampedTo(draft: Draft): Draft {
  const definition = definitions.peek()?.find(({ id }) => id === draft.definitionId);
  if (definition === undefined) return draft;
  return { ...draft, minutes: Math.min(draft.minutes, definition.options.max_duration_minutes) };
}

async function send(draft: Draft, keys: AttemptKeys): Promise<void> {
  if (isClass(draft)) {
    const body = classBody(draft, LOCAL_ZONE);
    const { batch } = await api.createClass(body, { idempotencyKey: keys.keyFor(body) });
    applySessions(batch.sessions);
    go(sessionsHref(`class=${encodeURIComponent(batch.id)}`));
  } else {
    const body = sessionBody(draft, LOCAL_ZONE);
    const { session } = await api.createSession(body, { idempotencyKey: keys.keyFor(body) });
    applySessions([session]);
    go(sessionHref(session.id));
  }
  keys.done();
}

interface FieldProps {
  readonly draft: Signal<Draft>;
  readonly problems: Signal<Problems>;
  readonly change: (part: Partial<Draft>, field?: Field) => void;
}

function Note({ id, problem, children }: { id: string; problem: string | undefined; children?: ComponentChildren }) {
  return (
    <p id={id} class="field-note" data-error={problem !== undefined} role={problem === undefined ? undefined : "alert"}>
      {problem ?? children}
    </p>
  );
}

function DefinitionField({ draft, problems, change }: FieldProps) {
  const problem = problems.value.get("definition");
  return (
    <fieldset class="field" data-field="definition" aria-describedby="definition-note">
      <legend>Definition</legend>
      <DefinitionPicker
        chosen={draft.value.definitionId}
        onChoose={(definitionId) => change({ definitionId }, "definition")}
      />
      <Note id="definition-note" problem={problem} />
    </fieldset>
  );
}

function SeatsField({ draft, problems, change }: FieldProps) {
  const problem = problems.value.get("seats");
  return (
    <div class="field" data-field="seats">
      <label for="seats">Seats</label>
      <input
        id="seats"
        class="input input-short"
        type="number"
        inputmode="numeric"
        min={1}
        max={MAX_SEATS}
        value={draft.value.seats}
        aria-invalid={problem !== undefined}
        aria-describedby="seats-note"
        onInput={(event) => change({ seats: event.currentTarget.value }, "seats")}
      />
      <Note id="seats-note" problem={problem}>
        One session for each; more than one is a class.
      </Note>
    </div>
  );
}

function ClassFields({ draft, problems, change }: FieldProps) {
  const { className, owners, isAllOrNothing } = draft.value;
  const nameProblem = problems.value.get("className");
  const actor = signedIn.value.kind === "signed-in" ? signedIn.value.actor : "you";
  return (
    <>
      <div class="field" data-field="className">
        <label for="class-name">Name of the class</label>
        <input
          id="class-name"
          class="input"
          autocomplete="off"
          maxLength={100}
          placeholder="CCNA Monday"
          value={className}
          aria-invalid={nameProblem !== undefined}
          aria-describedby="class-name-note"
          onInput={(event) => change({ className: event.currentTarget.value }, "className")}
        />
        <Note id="class-name-note" problem={nameProblem} />
      </div>
      <div class="field" data-field="owners">
        <label for="owners">
          Owners <span class="optional">optional</span>
        </label>
        <textarea
          id="owners"
          class="input textarea"
          rows={2}
          spellcheck={false}
          placeholder="One per line"
          value={owners}
          aria-invalid={problems.value.has("owners")}
          aria-describedby="owners-note"
          onInput={(event) => change({ owners: event.currentTarget.value }, "owners")}
        />
        <Note id="owners-note" problem={problems.value.get("owners")}>
          Who each seat belongs to. Without them all seats belong to {actor}.
        </Note>
      </div>
      <label class="switch switch-left">
        <input
          type="checkbox"
          role="switch"
          checked={isAllOrNothing}
          onChange={(event) => change({ isAllOrNothing: event.currentTarget.checked })}
        />
        All seats or none
      </label>
    </>
  );
}

interface WhenProps extends FieldProps {
  readonly definition: LabletDefinitionView | null;
}

function WhenField({ draft, problems, change, definition }: WhenProps) {
  const { isBooked } = draft.value;
  const problem = problems.value.get("when");
  return (
    <fieldset class="field" data-field="when">
      <legend>When</legend>
      <div class="choices">
        <label class="choice">
          <input type="radio" name="when" checked={!isBooked} onChange={() => change({ isBooked: false }, "when")} />
          As soon as possible
          {definition !== null && (
            <span class="choice-time">for {formatMinutes(definition.options.max_duration_minutes)}</span>
          )}
        </label>
        <div class="choice choice-slot" data-chosen={isBooked}>
          <label class="choice-label">
            <input type="radio" name="when" checked={isBooked} onChange={() => change({ isBooked: true }, "when")} />
            In a timeslot
          </label>
          <span class="slot-inputs">
            <input
              class="input"
              type="datetime-local"
              aria-label="Start"
              aria-invalid={problem !== undefined}
              aria-describedby="when-note"
              value={draft.value.start}
              onInput={(event) => change({ isBooked: true, start: event.currentTarget.value }, "when")}
            />
            <LengthSelect draft={draft} change={change} definition={definition} />
          </span>
        </div>
      </div>
      <Note id="when-note" problem={problem}>
        <SlotNote draft={draft} />
      </Note>
    </fieldset>
  );
}

function LengthSelect({ draft, change, definition }: Omit<WhenProps, "problems">) {
  const { minutes } = draft.value;
  const offered = lengthsUpTo(definition?.options.max_duration_minutes ?? 480);
  const lengths = offered.includes(minutes) ? offered : [...offered, minutes].sort((a, b) => a - b);
  return (
    <select
      class="select"
      aria-label="Length"
      value={minutes}
      onChange={(event) => change({ isBooked: true, minutes: Number(event.currentTarget.value) }, "when")}
    >
      {lengths.map((length) => (
        <option key={length} value={length}>
          {formatMinutes(length)}
        </option>
      ))}
    </select>
  );
}

function SlotNote({ draft }: { draft: Signal<Draft> }) {
  const timeslot = timeslotOf(draft.value, LOCAL_ZONE);
  if (timeslot === null) return <>Times are those of your zone, {LOCAL_ZONE}.</>;
  const utc = LOCAL_ZONE === "UTC" ? "" : ` (${formatSlot({ ...timeslot, zone: "UTC" }, now.peek())} UTC)`;
  return (
    <>
      {formatSlot(timeslot, now.peek())} {LOCAL_ZONE}
      {utc}
    </>
  );
}

function MoreFields({ draft, problems, change }: FieldProps) {
  const { region, reservation } = draft.value;
  const hasProblem = problems.value.has("region") || problems.value.has("reservation");
  return (
    <details class="more" open={hasProblem || undefined}>
      <summary>Region and reservation</summary>
      <div class="more-fields">
        <div class="field" data-field="region">
          <label for="region">Region</label>
          <select
            id="region"
            class="select"
            value={region}
            aria-describedby="region-note"
            onChange={(event) => change({ region: event.currentTarget.value }, "region")}
          >
            <option value="">Any</option>
            {regions.value.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <Note id="region-note" problem={problems.value.get("region")} />
        </div>
        <div class="field" data-field="reservation">
          <label for="reservation">Reservation id</label>
          <input
            id="reservation"
            class="input"
            autocomplete="off"
            maxLength={200}
            disabled={isClass(draft.value)}
            value={reservation}
            aria-invalid={problems.value.has("reservation")}
            aria-describedby="reservation-note"
            onInput={(event) => change({ reservation: event.currentTarget.value }, "reservation")}
          />
          <Note id="reservation-note" problem={problems.value.get("reservation")}>
            Of another booking system; it can be used for one session.
          </Note>
        </div>
      </div>
    </details>
  );
}

function SubmitButton({ draft, isBusy }: { draft: Signal<Draft>; isBusy: Signal<boolean> }) {
  const denial = denialFor("book");
  const seats = seatsOf(draft.value) ?? 1;
  return (
    <button
      type="submit"
      class="button button-primary"
      aria-busy={isBusy.value}
      disabled={denial !== null}
      title={denial ?? ""}
    >
      {isBusy.value && <Spinner />}
      {seats > 1 ? `Create ${seats} sessions` : "Create session"}
    </button>
  );
}
