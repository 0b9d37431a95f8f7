/** What would happen: whether the seats fit, where they go, what has to be started, what it costs. */

import { batch, type ReadonlySignal, type Signal, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { messageOf } from "../../app/api";
import * as api from "../../app/lablet-api";
import { startPolling } from "../../app/polling";
import type { PlannedLaunch, PreviewRequest, SchedulingPreview, Timeslot } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatCount, formatExact, formatSum, formatUntil, formatUsd } from "../../kit/format";
import { formatSlot, LOCAL_ZONE } from "../lablets/slot";
import { Workers } from "../lablets/why-card";
import { type Draft, lastEta, previewOf, seatsSentence, verdictInfo } from "./booking";
import { Latest } from "./latest";

/** The user types on within this time. */
const PAUSE_MS = 350;
const INTERVAL = { everyMs: 30_000, afterChangeMs: 3_000 };

interface PreviewState {
  readonly value: ReadonlySignal<SchedulingPreview | null>;
  readonly problem: ReadonlySignal<string | null>;
  readonly isBusy: ReadonlySignal<boolean>;
  /** While it is used, nothing in it changes unless the user changes the form. */
  readonly isUsed: Signal<boolean>;
}

/** Preview the draft whenever it changes, and again when the fleet does. */
export function usePreview(draft: ReadonlySignal<Draft>): PreviewState {
  const value = useSignal<SchedulingPreview | null>(null);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const isUsed = useSignal(false);
  const latest = useMemo(
    () =>
      new Latest<PreviewRequest, SchedulingPreview>(
        (request, signal) => api.previewScheduling(request, { signal }),
        (answer) =>
          batch(() => {
            value.value = answer;
            problem.value = null;
            isBusy.value = false;
          }),
        (error) =>
          batch(() => {
            value.value = null;
            problem.value = messageOf(error);
            isBusy.value = false;
          }),
      ),
    [],
  );

  useSignalEffect(() => {
    const request = previewOf(draft.value, LOCAL_ZONE);
    isBusy.value = request !== null;
    if (request !== null) return latest.request(request, PAUSE_MS);
    latest.cancel();
    value.value = null;
    problem.value = null;
  });
  useEffect(() => {
    let isFirst = true;
    const stop = startPolling(() => {
      const request = previewOf(draft.peek(), LOCAL_ZONE);
      // The first is that of the effect above, and one that is under way is about the newest draft.
      if (!isFirst && request !== null && !isUsed.peek() && !isBusy.peek()) latest.request(request, 0);
      isFirst = false;
    }, INTERVAL);
    return () => {
      stop();
      latest.cancel();
    };
  }, []);
  return { value, problem, isBusy, isUsed };
}

interface PreviewProps {
  readonly preview: PreviewState;
  readonly onChoose: (slot: Timeslot) => void;
}

export function Preview({ preview, onChoose }: PreviewProps) {
  const { value, problem, isBusy, isUsed } = preview;
  const answer = value.value;
  const use = (used: boolean) => () => {
    isUsed.value = used;
  };
  return (
    <section
      class="card preview"
      aria-label="Preview"
      aria-busy={isBusy.value}
      data-color={answer === null ? "grey" : verdictInfo(answer.verdict).color}
      onPointerEnter={use(true)}
      onPointerLeave={use(false)}
      onFocusIn={use(true)}
      onFocusOut={use(false)}
    >
      <h2>What would happen</h2>
      {answer === null ? (
        <p class="preview-none" role={problem.value === null ? undefined : "alert"}>
          {problem.value ?? (isBusy.value ? "Asking the scheduler…" : "Choose a definition to see whether it fits.")}
        </p>
      ) : (
        <Answer answer={answer} onChoose={onChoose} />
      )}
    </section>
  );
}

function Answer({ answer, onChoose }: { answer: SchedulingPreview; onChoose: (slot: Timeslot) => void }) {
  const { label, color } = verdictInfo(answer.verdict);
  return (
    <>
      <div class="verdict" data-verdict={answer.verdict} data-color={color} aria-live="polite">
        <span class="badge">
          <span class="dot" />
          {label}
        </span>
        <p>{answer.forecast.text || answer.text}</p>
      </div>
      <Nearest slots={answer.forecast.nearest} onChoose={onChoose} />
      <dl class="preview-facts">
        <dt>Seats</dt>
        <dd>
          {seatsSentence(answer)}
          {answer.text !== answer.forecast.text && <span class="fact-line">{answer.text}</span>}
          <LastEta answer={answer} />
        </dd>
        <dt>Workers</dt>
        <dd>
          <WorkersToCome answer={answer} />
        </dd>
        <dt>Cost</dt>
        <dd>
          <Cost answer={answer} />
        </dd>
        <dt>In all</dt>
        <dd>
          {answer.forecast.workers_needed} of {formatCount(answer.forecast.workers_possible, "possible worker")} needed
          for everything booked then
        </dd>
      </dl>
      <Reasons answer={answer} />
    </>
  );
}

/** The verdict beside the button, where the preview is out of sight. */
export function VerdictChip({ preview: { value, isBusy } }: { preview: PreviewState }) {
  const answer = value.value;
  if (answer === null) return <span />;
  const { label, color } = verdictInfo(answer.verdict);
  return (
    <span class="verdict-chip" data-color={color} aria-hidden="true" data-busy={isBusy.value}>
      <span class="badge">
        <span class="dot" />
        {label}
      </span>
      {answer.usd_per_hour !== null && answer.usd_per_hour > 0 && <span>{formatUsd(answer.usd_per_hour)}/h</span>}
    </span>
  );
}

function Nearest({ slots, onChoose }: { slots: readonly Timeslot[]; onChoose: (slot: Timeslot) => void }) {
  if (slots.length === 0) return null;
  return (
    <div class="nearest" role="group" aria-label="Nearest timeslots that fit">
      <span class="nearest-label">Fits at</span>
      {slots.map((slot) => (
        <button key={slot.start} type="button" class="button button-small" onClick={() => onChoose(slot)}>
          {formatSlot({ ...slot, zone: LOCAL_ZONE }, now.peek())}
        </button>
      ))}
    </div>
  );
}

function LastEta({ answer }: { answer: SchedulingPreview }) {
  const at = lastEta(answer);
  if (at === null) return null;
  const basis = answer.seats.find(({ eta }) => eta?.likely === at)?.eta?.basis ?? "";
  return (
    <span class="fact-line">
      {answer.seats.length > 1 ? "The last is" : "It is"} expected to have a worker at{" "}
      <time dateTime={at} title={formatExact(at)}>
        {formatUntil(Date.parse(at), now.peek())}
      </time>
      {basis !== "" && ` (${basis})`}.
    </span>
  );
}

function WorkersToCome({ answer: { brought_back: started, launches } }: { answer: SchedulingPreview }) {
  if (started.length === 0 && launches.length === 0) return <>No worker has to be started.</>;
  return (
    <ul>
      {started.map((name) => (
        <li key={name}>
          <strong>{name}</strong> is started or its drain cancelled
        </li>
      ))}
      {launches.map((launch) => (
        <li key={`${launch.template} ${launch.region}`}>
          <LaunchText launch={launch} />
        </li>
      ))}
    </ul>
  );
}

function LaunchText({ launch: { count, template, region, usd_per_hour: price } }: { launch: PlannedLaunch }) {
  return (
    <>
      {count} × <strong>{template}</strong> {count === 1 ? "is" : "are"} launched in {region}
      <span class="fact-aside"> {formatUsd(price)} per hour</span>
    </>
  );
}

function Cost({ answer: { usd_per_hour: hourly, usd_total: total } }: { answer: SchedulingPreview }) {
  if (hourly === null) return <>Not known: the price of a template is missing.</>;
  if (hourly === 0) return <>Nothing more than what runs already.</>;
  return (
    <>
      <strong>{formatUsd(hourly)}</strong> per hour
      {total !== null && (
        <>
          , <strong>{formatSum(total)}</strong> for the whole timeslot
        </>
      )}
    </>
  );
}

function Reasons({ answer }: { answer: SchedulingPreview }) {
  const workers = answer.workers.filter(({ reasons }) => reasons.length > 0);
  if (workers.length === 0) return null;
  return (
    <details class="more">
      <summary>Why not on {formatCount(workers.length, "worker")}</summary>
      <Workers workers={workers} counts={{}} />
    </details>
  );
}
