/** A worker's load over an hour, a day or a week. */

import { type Signal, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { usePolledAnswer } from "../../app/answer";
import * as api from "../../app/api";
import { query, replaceQuery } from "../../app/router";
import type { WorkerView } from "../../generated/api";
import { LinkLine } from "./load";
import type { Zoom } from "./load-charts";
import { RANGES, type Range, rangeOf } from "./load-history";

/** The charts, once they are loaded. */
const charts = signal<typeof import("./load-charts") | null>(null);

const never = signal(0);

export function LoadHistorySection({ worker }: { worker: WorkerView }) {
  const range = rangeOf(query.value.get("range"));
  const zoom = useSignal<Zoom>(null);
  return (
    <section class="history" aria-label="Load history">
      <div class="history-bar">
        <h2>Load</h2>
        <fieldset class="chips" aria-label="Time shown">
          {RANGES.map(({ id, label }) => (
            <button
              key={id}
              type="button"
              class="chip"
              aria-pressed={id === range.id}
              onClick={() => {
                zoom.value = null;
                replaceQuery(id === RANGES[0]?.id ? "" : `range=${id}`);
              }}
            >
              {label}
            </button>
          ))}
        </fieldset>
        <button
          type="button"
          class="button button-small"
          disabled={zoom.value === null}
          title="Drag over a chart to zoom in"
          onClick={() => {
            zoom.value = null;
          }}
        >
          Whole range
        </button>
      </div>
      <Charts key={`${worker.id} ${range.id}`} worker={worker} range={range} zoom={zoom} />
      <LinkLine worker={worker} />
    </section>
  );
}

interface ChartsProps {
  readonly worker: WorkerView;
  readonly range: Range;
  readonly zoom: Signal<Zoom>;
}

/** As high as the charts from the start: nothing below moves when they come. */
function Charts({ worker, range, zoom }: ChartsProps) {
  const loading = useSignal<string | null>(null);
  const { value, problem } = usePolledAnswer(
    worker.id,
    () => api.getLoadHistory(worker.id, range.id),
    { everyMs: range.refreshMs, afterChangeMs: range.refreshMs },
    never,
  );
  useEffect(() => {
    import("./load-charts").then(
      (loaded) => {
        charts.value = loaded;
      },
      () => {
        loading.value = "The charts could not be loaded. Reload the page.";
      },
    );
  }, []);
  const history = value.value;
  const trouble = loading.value ?? problem.value;
  const LoadCharts = charts.value?.LoadCharts;
  return (
    <div class="history-body" aria-busy={trouble === null && (history === null || LoadCharts === undefined)}>
      {trouble !== null && (
        <p class="history-note" role="alert">
          {trouble}
        </p>
      )}
      {trouble === null && history?.points.length === 0 && (
        <p class="history-note">Nothing was measured in this time: a worker is measured while it runs.</p>
      )}
      {history !== null && LoadCharts !== undefined && <LoadCharts history={history} zoom={zoom} />}
    </div>
  );
}
