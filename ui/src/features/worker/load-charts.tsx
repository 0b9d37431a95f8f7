/** The charts of a worker's load. They bring uPlot with them, which the other pages do not load. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../../app/theme";
import type { LoadHistory } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatMoment, formatUntil } from "../../kit/format";
import { mediaQuery } from "../../kit/media";
import { CHARTS, type ChartSpec, type Columns, chartSummary, columnsOf, rangeOf } from "./load-history";

/** The time that is shown, in seconds since 1970; null: the whole range. */
export type Zoom = readonly [number, number] | null;

const HEIGHT = 150;
const DAY_SECONDS = 86_400;
const NOTHING = { points: [], gap_seconds: 0 };

const isDark = mediaQuery("(prefers-color-scheme: dark)");
const dayFormat = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });

interface ChartsProps {
  readonly history: LoadHistory;
  readonly zoom: Signal<Zoom>;
}

export function LoadCharts({ history, zoom }: ChartsProps) {
  return (
    <div class="history-charts">
      {CHARTS.map((chart) => (
        <Chart key={chart.id} chart={chart} history={history} zoom={zoom} />
      ))}
    </div>
  );
}

interface ChartProps extends ChartsProps {
  readonly chart: ChartSpec;
}

function Chart({ chart, history, zoom }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const hovered = useSignal<number | null>(null);
  const columns = useMemo(() => columnsOf(history, chart.lines), [history, chart]);
  const shown = zoom.value;

  useEffect(() => {
    const target = box.current;
    if (target === null) return;
    const drawn = new uPlot(
      optionsOf(chart, target.clientWidth, zoom, hovered),
      aligned(columnsOf(NOTHING, chart.lines)),
      target,
    );
    plot.current = drawn;
    const resizes = new ResizeObserver(() => drawn.setSize({ width: target.clientWidth, height: HEIGHT }));
    resizes.observe(target);
    return () => {
      resizes.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [chart, zoom, hovered]);

  useEffect(() => {
    const [min, max] = shown ?? [history.since, history.until];
    plot.current?.setData(aligned(columns), false);
    plot.current?.setScale("x", { min, max });
  }, [columns, history, shown]);

  // Only the colors of the theme are others: the scales that are about to be set stay.
  useEffect(() => plot.current?.redraw(false), [theme.value, isDark.value]);

  return (
    <figure class="history-chart" data-chart={chart.id}>
      <figcaption class="history-head">
        <span class="chart-label">{chart.label}</span>
        <Values chart={chart} columns={columns} index={hovered.value} />
      </figcaption>
      <div
        ref={box}
        class="history-plot"
        role="img"
        aria-label={chartSummary(chart, columns, rangeOf(history.range))}
      />
    </figure>
  );
}

interface ValuesProps {
  readonly chart: ChartSpec;
  readonly columns: Columns;
  /** The point under the pointer. */
  readonly index: number | null;
}

/** What was measured where the pointer is, or last. */
function Values({ chart, columns: { times, values }, index }: ValuesProps) {
  const place = index !== null && index < times.length ? index : times.length - 1;
  const at = times[place];
  return (
    <>
      <span class="history-at">
        {index !== null && at !== undefined && formatMoment(new Date(at * 1_000).toISOString(), now.peek())}
      </span>
      <span class="history-values">
        {chart.lines.map((line, number) => (
          <span key={line.label} class="history-value">
            {chart.lines.length > 1 && (
              <span class="history-line" data-line={line.label}>
                {line.label}
              </span>
            )}
            {chart.format(values[number]?.[place] ?? null)}
          </span>
        ))}
      </span>
    </>
  );
}

function aligned({ times, values }: Columns): uPlot.AlignedData {
  return [[...times], ...values.map((column) => [...column])];
}

function optionsOf(chart: ChartSpec, width: number, zoom: Signal<Zoom>, hovered: Signal<number | null>): uPlot.Options {
  const axis = { stroke: () => colorOf("--faint"), grid: { stroke: () => colorOf("--line"), width: 1 } };
  return {
    width,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: "load", setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          zoom.value = null;
          return null;
        },
      },
    },
    scales: {
      x: { time: true },
      y: { range: (_plot, _low, high) => [0, chart.top ?? Math.max(1, (high ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, size: 26, values: (_plot, splits) => tickTexts(splits) },
      { ...axis, size: 64, values: (_plot, splits) => splits.map((value) => chart.format(value)) },
    ],
    series: [
      {},
      ...chart.lines.map((line) => ({
        stroke: () => colorOf(line.color),
        width: 1.5,
        points: { show: false },
        ...(chart.lines.length > 1 ? {} : { fill: () => colorOf(`${line.color}-soft`) }),
      })),
    ],
    hooks: {
      setCursor: [
        ({ cursor }) => {
          hovered.value = cursor.idx ?? null;
        },
      ],
      setSelect: [
        (plot) => {
          const { left, width: selected } = plot.select;
          if (selected < 8) return;
          zoom.value = [plot.posToVal(left, "x"), plot.posToVal(left + selected, "x")];
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** As exact as two ticks differ. */
function tickTexts(splits: readonly number[]): string[] {
  const step = (splits[1] ?? 0) - (splits[0] ?? 0);
  return splits.map((second) => {
    const at = second * 1_000;
    if (step >= DAY_SECONDS) return dayFormat.format(at);
    return step < 60 ? formatMoment(new Date(at).toISOString(), at) : formatUntil(at, at);
  });
}

const probe = document.createElement("span");

/** A canvas does not know the colors of the theme: an element resolves them. */
function colorOf(name: string): string {
  probe.hidden = true;
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return window.getComputedStyle(probe).color;
}
