/** Why a session is where it is and when it gets a worker, from /explain: what the next cycle does. */

import { computed } from "@preact/signals";
import { useCallback, useState } from "preact/hooks";
import { usePolledAnswer } from "../../app/answer";
import * as api from "../../app/lablet-api";
import { workerHref } from "../../app/router";
import { fleetChanges } from "../../app/store";
import type { Eta, LabletSessionView, Rejection, SessionExplanation, WorkerReasons } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatCount, formatExact, formatRemaining, formatUntil } from "../../kit/format";
import { Age, Ticking } from "../../kit/time";
import { LABEL_TEXT, orderedCounts, reasonName } from "./explain";
import { isEnded, reasonOf, sessionInfo, waitsForWorker } from "./model";
import { WorkerName } from "./session-row";
import { sessionChanges } from "./store";

const INTERVAL = { everyMs: 15_000, afterChangeMs: 2_000 };
const changes = computed(() => sessionChanges.value + fleetChanges.value);

export function WhyCard({ session }: { session: LabletSessionView }) {
  const key = isEnded(session) ? null : `${session.id} ${session.version}`;
  const { value, problem } = usePolledAnswer(key, () => api.explainSession(session.id), INTERVAL, changes);
  // The answer about an earlier status explains nothing any more.
  const explanation = value.value?.status === session.status ? value.value : null;
  return (
    <section class="card why-card" aria-label="Why and when" data-color={sessionInfo(session.status).color}>
      <h2>Why and when</h2>
      <p class="why-sentence" data-testid="why">
        {explanation?.text || reasonOf(session) || sessionInfo(session.status).meaning}
      </p>
      {explanation?.is_scheduler_silent === true && (
        <p class="why-silent" role="status">
          No scheduler leads, or it has not reported for a minute. Nothing is placed until one does.
        </p>
      )}
      {explanation !== null && <Facts session={session} explanation={explanation} />}
      {problem.value !== null && explanation === null && !isEnded(session) && (
        <p class="field-note" role="status">
          The explanation could not be fetched: {problem.value}
        </p>
      )}
    </section>
  );
}

function Facts({ session, explanation }: { session: LabletSessionView; explanation: SessionExplanation }) {
  if (!waitsForWorker(session)) return <Warnings warnings={explanation.warnings} />;
  const { since, position, ahead, eta, worker_id: worker, nomination, next_event: next } = explanation;
  return (
    <>
      <dl class="why-facts">
        {since !== null && (
          <div>
            <dt>Waits for</dt>
            <dd>
              <Age at={since} />
            </dd>
          </div>
        )}
        {position > 0 && (
          <div>
            <dt>Place in the queue</dt>
            <dd>
              {position}
              <span class="fact-aside">{ahead === 0 ? "nothing ahead" : `${ahead} ahead`}</span>
            </dd>
          </div>
        )}
        {eta !== null && <Expected eta={eta} />}
        {worker !== null && (
          <div>
            <dt>{nomination === null ? "Worker" : "Counts on"}</dt>
            <dd>
              <WorkerName id={worker} />
              {nomination !== null && (
                <span class="fact-aside">ready at {formatUntil(Date.parse(nomination.ready_at), now.peek())}</span>
              )}
            </dd>
          </div>
        )}
        {next !== null && (
          <div>
            <dt>Next</dt>
            <dd>
              {next.what}
              <In at={next.at} />
            </dd>
          </div>
        )}
      </dl>
      <Warnings warnings={explanation.warnings} />
      <Workers workers={explanation.workers} counts={explanation.counts} />
    </>
  );
}

function Expected({ eta }: { eta: Eta }) {
  const moment = (at: string) => (
    <time dateTime={at} title={formatExact(at)}>
      {formatUntil(Date.parse(at), now.peek())}
    </time>
  );
  return (
    <div class="why-eta">
      <dt>Expected</dt>
      <dd>
        {moment(eta.likely)}
        <In at={eta.likely} />
        {eta.earliest !== eta.likely && <span class="fact-aside">earliest {moment(eta.earliest)}</span>}
        <span class="why-basis">{eta.basis}</span>
      </dd>
    </div>
  );
}

function In({ at }: { at: string }) {
  const text = useCallback(
    (moment: number) => {
      const left = Date.parse(at) - moment;
      return left > 0 ? `in ${formatRemaining(left)}` : "now";
    },
    [at],
  );
  return (
    <span class="fact-aside">
      <Ticking text={text} />
    </span>
  );
}

export function Warnings({ warnings }: { warnings: readonly string[] }) {
  if (warnings.length === 0) return null;
  return (
    <ul class="why-warnings">
      {warnings.map((warning) => (
        <li key={warning}>{warning === "definitions_unknown" ? UNREAD : warning}</li>
      ))}
    </ul>
  );
}

const UNREAD = "The node definitions and images of the worker have not been read yet.";
const SHOWN_AT_FIRST = 8;

interface WorkersProps {
  readonly workers: readonly WorkerReasons[];
  readonly counts: Readonly<Record<string, number>>;
}

/** Every worker with what it lacks, in numbers. */
export function Workers({ workers, counts }: WorkersProps) {
  const [isWhole, setWhole] = useState(false);
  if (workers.length === 0) return null;
  const shown = isWhole ? workers : workers.slice(0, SHOWN_AT_FIRST);
  return (
    <section class="why-workers" aria-label="Workers">
      <h3>{formatCount(workers.length, "worker")}</h3>
      <p class="why-counts">
        {orderedCounts(counts).map(([label, count]) => (
          <span key={label} class="tag">
            {count} × {LABEL_TEXT[label] ?? label}
          </span>
        ))}
      </p>
      <ul>
        {shown.map((worker) => (
          <li key={worker.worker_id} class="why-worker" data-fits={worker.reasons.length === 0}>
            <a class="link-text" href={workerHref(worker.worker_id)}>
              {worker.worker_name}
            </a>
            <Reasons reasons={worker.reasons} />
          </li>
        ))}
      </ul>
      {workers.length > shown.length && (
        <button type="button" class="text-button" onClick={() => setWhole(true)}>
          Show all {workers.length}
        </button>
      )}
    </section>
  );
}

function Reasons({ reasons }: { reasons: readonly Rejection[] }) {
  if (reasons.length === 0) return <span class="why-fits">could take it</span>;
  return (
    <ul class="why-reasons">
      {reasons.map((reason) => (
        <li key={`${reason.label} ${reason.sub}`} data-label={reason.label}>
          <span class="why-label">{reasonName(reason)}</span> needs {reason.need}, has {reason.have}
        </li>
      ))}
    </ul>
  );
}
