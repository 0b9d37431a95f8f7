/** What the scheduler does: the queue in its order, the workers as bins that claims fill, and what it decided. */

import { computed, useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { usePolledAnswer } from "../../app/answer";
import { getQueue, listPlacements } from "../../app/lablet-api";
import { ownerName } from "../../app/people";
import { sessionHref, workerHref } from "../../app/router";
import { entries, fleetChanges } from "../../app/store";
import type { DecisionRecord, QueueEntry } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatCount, formatExact, formatMoment } from "../../kit/format";
import { Ago } from "../../kit/time";
import { definitionOf, sessionInfo, shortId, titleOf } from "../lablets/model";
import { Countdown, SlotText } from "../lablets/session-badge";
import { WorkerName } from "../lablets/session-row";
import { allSessions, sessionChanges, sessions, wantSessions } from "../lablets/store";
import { StatusBadge } from "../worker/status-badge";
import { type Bin, binsOf, expectedText, filledText, outcomeInfo, type Segment } from "./scheduler";

const changes = computed(() => sessionChanges.value + fleetChanges.value);
const INTERVAL = { everyMs: 15_000, afterChangeMs: 1_000 };

export function SchedulerPage() {
  useEffect(wantSessions, []);
  return (
    <>
      <div class="page-head">
        <h1>Scheduler</h1>
      </div>
      <p class="page-lead">Sessions in the order in which they get a worker, and the room that they take.</p>
      <Queue />
      <Bins />
      <Decisions />
    </>
  );
}

function Queue() {
  const { value, problem } = usePolledAnswer("queue", getQueue, INTERVAL, changes);
  const queue = value.value;
  return (
    <section class="scheduler-part" aria-label="Queue">
      <h2>
        Queue <span class="count">{queue?.items.length ?? ""}</span>
      </h2>
      {queue?.is_scheduler_silent === true && (
        <p class="why-silent" role="status">
          No scheduler leads, or it has not reported for a minute. Nothing is placed until one does.
        </p>
      )}
      {problem.value !== null && (
        <p class="field-note" role="status">
          The queue could not be fetched: {problem.value}
        </p>
      )}
      {queue !== null && queue.items.length === 0 && <p class="field-note">No session waits for a worker.</p>}
      {queue !== null && queue.items.length > 0 && (
        <ol class="queue">
          {queue.items.map((entry) => (
            <Waiting key={entry.session.id} entry={entry} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Waiting({ entry: { session, text, position, worker_id: worker, likely_at: likely } }: { entry: QueueEntry }) {
  const { timeslot } = session;
  return (
    <li class="queue-item" data-session-id={session.id}>
      <span class="queue-position">{position > 0 ? position : "→"}</span>
      <span class="queue-session">
        <a class="link-text" href={sessionHref(session.id)}>
          {definitionOf(session)}
        </a>
        <span class="second">
          {ownerName(session.owner_id)} · <Countdown session={session} />
        </span>
      </span>
      <span class="queue-text">{text}</span>
      <span class="queue-when">
        {worker !== null && <WorkerName id={worker} />}
        {likely !== null && (
          <span class="second" title={formatExact(likely)}>
            {expectedText(likely, now.peek())}
          </span>
        )}
        {timeslot !== null && (
          <span class="second">
            <SlotText timeslot={timeslot} />
          </span>
        )}
      </span>
    </li>
  );
}

function Bins() {
  const bins = useComputed(() =>
    binsOf(
      [...entries.value.values()].map(({ worker }) => worker.value),
      allSessions.value,
    ),
  ).value;
  return (
    <section class="scheduler-part" aria-label="Workers">
      <h2>
        Workers <span class="count">{bins.length}</span>
      </h2>
      {bins.length === 0 && <p class="field-note">No worker whose size is known.</p>}
      <ul class="bins">
        {bins.map((bin) => (
          <BinItem key={bin.worker.id} bin={bin} />
        ))}
      </ul>
    </section>
  );
}

function BinItem({ bin: { worker, declared, claimed, segments } }: { bin: Bin }) {
  const nominated = segments.filter(({ isNominated }) => isNominated).length;
  return (
    <li class="bin" data-worker-id={worker.id}>
      <div class="bin-head">
        <a class="link-text" href={workerHref(worker.id)}>
          {worker.name}
        </a>
        <StatusBadge status={worker.status} />
      </div>
      <Bar name="CPU" segments={segments} part="cpu" text={filledText(claimed.cpu, declared.cpu, "CPU")} />
      <Bar
        name="Memory"
        segments={segments}
        part="memory"
        text={filledText(claimed.memory_gb, declared.memory_gb, "GB")}
      />
      <p class="second">
        {formatCount(segments.length - nominated, "session")}
        {nominated > 0 && `, ${nominated} that ${nominated === 1 ? "waits counts" : "wait count"} on it`}
      </p>
    </li>
  );
}

interface BarProps {
  readonly name: string;
  readonly segments: readonly Segment[];
  readonly part: "cpu" | "memory";
  readonly text: string;
}

function Bar({ name, segments, part, text }: BarProps) {
  return (
    <div class="bin-line">
      <div class="bin-bar" role="img" aria-label={`${name}: ${text}`}>
        {segments.map(({ session, color, isNominated, [part]: width }) => (
          <span
            key={session.id}
            class="bin-segment"
            data-color={color}
            data-nominated={isNominated}
            style={{ width: `${width}%` }}
            title={`${titleOf(session)}: ${sessionInfo(session.status).label}`}
          />
        ))}
      </div>
      <span class="bin-text">{text}</span>
    </div>
  );
}

const FEW = 50;
const MANY = 500;

function Decisions() {
  const limit = useSignal(FEW);
  const { value, problem } = usePolledAnswer(
    `decisions ${limit.value}`,
    () => listPlacements(limit.value),
    INTERVAL,
    changes,
  );
  const decisions = value.value;
  return (
    <section class="scheduler-part" aria-label="Decisions">
      <h2>Decisions</h2>
      {problem.value !== null && (
        <p class="field-note" role="status">
          The decisions could not be fetched: {problem.value}
        </p>
      )}
      {decisions !== null && decisions.items.length === 0 && <p class="field-note">Nothing was decided yet.</p>}
      {decisions !== null && decisions.items.length > 0 && (
        <ol class="audit">
          {decisions.items.map((record) => (
            <DecisionItem key={`${record.session_id} ${record.at} ${record.outcome}`} record={record} />
          ))}
        </ol>
      )}
      {decisions !== null && decisions.next !== null && limit.value < MANY && (
        <button
          type="button"
          class="button audit-more"
          onClick={() => {
            limit.value = MANY;
          }}
        >
          Show older
        </button>
      )}
    </section>
  );
}

function DecisionItem({
  record: { session_id: id, at, outcome, text, worker_id: worker },
}: {
  record: DecisionRecord;
}) {
  const { label, color } = outcomeInfo(outcome);
  const session = sessions.value.get(id)?.session.value;
  return (
    <li class="decision" data-outcome={outcome} data-color={color}>
      <span class="decision-event">
        <span class="dot" />
        {label}
      </span>
      <span class="decision-reason">
        <a class={session === undefined ? "link-text mono" : "link-text"} href={sessionHref(id)} title={id}>
          {session === undefined ? shortId(id) : titleOf(session)}
        </a>{" "}
        {text}
      </span>
      <span class="decision-about">{worker !== null && <WorkerName id={worker} />}</span>
      <span class="decision-when" title={formatMoment(at, now.peek())}>
        <Ago at={at} />
      </span>
    </li>
  );
}
