/** CPU, memory and disk load of a worker, live. */

import { computed, type Signal, useComputed } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { WorkerEntry } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import type { Color } from "../../generated/rules";
import { now } from "../../kit/clock";
import { Ago } from "../../kit/time";
import { useVisibility } from "../../kit/visibility";
import { requestHistory } from "./history";
import {
  formatPercent,
  isMonitored,
  LIVE_MS,
  type Link,
  type Load,
  linkMeaning,
  linkOf,
  loadOf,
  MEASURES,
  type Measure,
  sparklinePath,
} from "./live";

const LINK: Readonly<Record<Link, { readonly color: Color; readonly label: string }>> = {
  websocket: { color: "green", label: "Connected" },
  polling: { color: "orange", label: "Polling" },
  off: { color: "grey", label: "Not running" },
};

/** Green while CML pushes data, amber while it is polled, grey while it is not monitored. */
export function LinkDot({ worker }: { worker: WorkerView }) {
  const link = linkOf(worker);
  const { color, label } = LINK[link];
  return (
    <span class="link" data-link={link} data-color={color} title={linkMeaning(worker)}>
      <span class="dot" />
      <span class="visually-hidden">{label}</span>
    </span>
  );
}

/** A cell of the fleet's table; renders nothing while it is not visible. */
export function LoadCell({ entry }: { entry: WorkerEntry }) {
  const cell = useRef<HTMLDivElement>(null);
  const isVisible = useVisibility(cell);
  const worker = entry.worker.value;
  const isOn = isMonitored(worker);
  return (
    <div ref={cell} class="load" data-on={isOn}>
      {isVisible.value && isOn ? <LoadNow worker={worker} /> : <span class="first absent">—</span>}
    </div>
  );
}

function LoadNow({ worker }: { worker: WorkerView }) {
  const load = loadOf(worker.id);
  useEffect(() => requestHistory(worker.id), [worker.id]);
  const known = load.value;
  const source = (
    <span class="load-fresh">
      <LinkDot worker={worker} />
      <Freshness worker={worker} load={load} />
    </span>
  );
  if (known === null) return source;
  return (
    <span class="load-now">
      <span class="load-trend">
        <Sparkline load={known} measure="cpu" />
        {source}
      </span>
      {MEASURES.map(({ id, label }) => (
        <span key={id} class="load-value" data-measure={id} data-color={colorOf(known.newest[id] ?? null)}>
          <span class="load-label">{label === "Memory" ? "Mem" : label}</span>
          <span class="load-number">{formatPercent(known.newest[id] ?? null)}</span>
        </span>
      ))}
    </span>
  );
}

/** "Live", or how old the newest data are. */
function Freshness({ worker, load }: { worker: WorkerView; load: Signal<Load | null> }) {
  const isLive = useMemo(
    () => computed(() => load.value !== null && now.value - load.value.newest.at < LIVE_MS),
    [load],
  );
  const at = useComputed(() => load.value?.newest.at ?? null);
  if (isLive.value) return <span class="live-badge">Live</span>;
  if (at.value === null) return <span>{linkOf(worker) === "websocket" ? "connected" : "no data yet"}</span>;
  return <Ago at={new Date(at.value).toISOString()} />;
}

function colorOf(value: number | null): Color | undefined {
  if (value === null || value < 75) return undefined;
  return value < 90 ? "orange" : "red";
}

function Sparkline({ load, measure }: { load: Load | null; measure: Measure }) {
  const path = load === null ? "" : sparklinePath(load.points, measure);
  return (
    <svg class="sparkline" data-measure={measure} viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
      {path.includes("L") && <path class="sparkline-area" d={areaUnder(path)} />}
      <path class="sparkline-line" d={path} />
    </svg>
  );
}

/** Only a line without gaps can be filled. */
function areaUnder(line: string): string {
  if (line.lastIndexOf("M") > 0) return "";
  const start = /^M([\d.]+)/.exec(line)?.[1] ?? "0";
  const end = /([\d.]+) [\d.]+$/.exec(line)?.[1] ?? "100";
  return `${line}L${end} 100L${start} 100Z`;
}

/** The section of the worker's panel: three charts and the source of the data. */
export function LoadSection({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const load = loadOf(worker.id);
  const isOn = isMonitored(worker);
  useEffect(() => {
    if (isOn) requestHistory(worker.id);
  }, [worker.id, isOn]);
  if (!isOn) return null;
  return (
    <section class="panel-section" aria-label="Load">
      <h3 class="load-head">
        Load
        <Freshness worker={worker} load={load} />
      </h3>
      <div class="charts">
        {MEASURES.map(({ id, label }) => (
          <Chart key={id} load={load.value} measure={id} label={label} />
        ))}
      </div>
      <LinkLine worker={worker} />
    </section>
  );
}

/** Where the data come from. */
export function LinkLine({ worker }: { worker: WorkerView }) {
  return (
    <p class="load-link">
      <LinkDot worker={worker} />
      {linkMeaning(worker)}
    </p>
  );
}

function Chart({ load, measure, label }: { load: Load | null; measure: Measure; label: string }) {
  const value = load?.newest[measure] ?? null;
  return (
    <div class="chart" role="img" aria-label={`${label}: ${chartMeaning(load, measure)}`}>
      <span class="chart-label">{label}</span>
      <span class="chart-value" data-color={colorOf(value)}>
        {formatPercent(value)}
      </span>
      <Sparkline load={load} measure={measure} />
    </div>
  );
}

function chartMeaning(load: Load | null, measure: Measure): string {
  const values = [...(load?.points ?? [])].map((point) => point[measure]).filter((value) => value !== null);
  if (load === null || values.length === 0) return "unknown";
  const low = formatPercent(Math.min(...values));
  const high = formatPercent(Math.max(...values));
  return `${formatPercent(load.newest[measure])} now, between ${low} and ${high} lately`;
}
