import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../../app/api";
import type { HistoryEntry, WorkerView } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatDuration, formatMoment } from "../../kit/format";
import { Age, Ago } from "../../kit/time";
import { statusInfo } from "./model";

/** The timeline of the worker, newest first; fetched again whenever the record changes. */
export function Timeline({ worker }: { worker: WorkerView }) {
  const items = useSignal<readonly HistoryEntry[] | null>(null);
  const problem = useSignal<string | null>(null);

  useEffect(() => {
    let isCurrent = true;
    api.getTimeline(worker.id).then(
      (answer) => {
        if (!isCurrent) return;
        items.value = answer;
        problem.value = null;
      },
      (error: unknown) => {
        if (isCurrent) problem.value = error instanceof Error ? error.message : String(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [worker.id, worker.updated_at]);

  if (problem.value !== null) return <p class="panel-note">{problem.value}</p>;
  if (items.value === null) return <TimelineSkeleton />;
  const oldestFirst = items.value;
  return (
    <ol class="timeline" data-testid="timeline">
      {oldestFirst.map((item, index) => <Step key={index} item={item} endedAt={endOf(oldestFirst, index)} />).reverse()}
    </ol>
  );
}

/** When the status that this item began ended; null if it is the present one. */
function endOf(items: readonly HistoryEntry[], index: number): string | null {
  return items.slice(index + 1).find((later) => later.to !== later.from)?.at ?? null;
}

function Step({ item, endedAt }: { item: HistoryEntry; endedAt: string | null }) {
  // A request is recorded at its time, without a change of status.
  if (item.from === item.to) return <RequestStep item={item} />;
  const { label, color, moving } = statusInfo(item.to);
  return (
    <li class="step" data-to={item.to} data-color={color} data-moving={endedAt === null && moving}>
      <span class="dot" />
      <div class="step-head">
        <span class="step-status">{label}</span>
        {endedAt === null ? (
          <span class="step-span">
            for <Age at={item.at} />
          </span>
        ) : (
          <span class="step-span" title="How long the status lasted">
            {formatDuration(Date.parse(endedAt) - Date.parse(item.at))}
          </span>
        )}
      </div>
      {item.reason !== "" && <p class="step-reason">{item.reason}</p>}
      <When item={item} />
    </li>
  );
}

function RequestStep({ item }: { item: HistoryEntry }) {
  return (
    <li class="step step-request" data-to={item.to}>
      <span class="dot" />
      <span class="step-request-text">{item.reason}</span>
      <When item={item} />
    </li>
  );
}

function When({ item }: { item: HistoryEntry }) {
  return (
    <p class="step-when">
      <Ago at={item.at} />
      <span>{formatMoment(item.at, now.peek())}</span>
      <span title={item.principal_id ?? undefined}>{item.by}</span>
    </p>
  );
}

function TimelineSkeleton() {
  return (
    <div class="timeline-skeleton" aria-busy="true">
      <span class="placeholder" />
      <span class="placeholder" />
      <span class="placeholder" />
    </div>
  );
}
