/** A worker's load over time, as columns for charts; the rules that need no browser. */

import type { HistoryRange, LoadHistory } from "../../generated/api";
import { formatBytes } from "../../kit/format";
import { formatPercent } from "./live";

export const RANGES: readonly { readonly id: HistoryRange; readonly label: string; readonly refreshMs: number }[] = [
  { id: "1h", label: "1 hour", refreshMs: 10_000 },
  { id: "24h", label: "24 hours", refreshMs: 60_000 },
  { id: "7d", label: "7 days", refreshMs: 300_000 },
];

export type Range = (typeof RANGES)[number];

const SHORTEST = RANGES[0] as Range;

/** The range that the URL names; the shortest if it names none. */
export function rangeOf(text: string | null): Range {
  return RANGES.find(({ id }) => id === text) ?? SHORTEST;
}

export interface Line {
  readonly label: string;
  /** Its place in a point of the history. */
  readonly column: 1 | 2 | 3 | 4 | 5;
  /** A color of the theme. */
  readonly color: string;
}

export interface ChartSpec {
  readonly id: string;
  readonly label: string;
  /** The top of the chart; null: as high as the values. */
  readonly top: number | null;
  readonly lines: readonly Line[];
  readonly format: (value: number | null) => string;
}

export const CHARTS: readonly ChartSpec[] = [
  {
    id: "cpu",
    label: "CPU",
    top: 100,
    lines: [{ label: "CPU", column: 1, color: "--blue" }],
    format: formatPercent,
  },
  {
    id: "memory",
    label: "Memory",
    top: 100,
    lines: [{ label: "Memory", column: 2, color: "--purple" }],
    format: formatPercent,
  },
  {
    id: "disk",
    label: "Disk",
    top: 100,
    lines: [{ label: "Disk", column: 3, color: "--orange" }],
    format: formatPercent,
  },
  {
    id: "network",
    label: "Network",
    top: null,
    lines: [
      { label: "in", column: 4, color: "--green" },
      { label: "out", column: 5, color: "--blue" },
    ],
    format: (value) => (value === null ? "—" : `${formatBytes(Math.round(value))}/s`),
  },
];

export interface Columns {
  /** Seconds since 1970. */
  readonly times: readonly number[];
  /** For each line its values; null breaks it. */
  readonly values: readonly (readonly (number | null)[])[];
}

/** The columns of a chart: a line ends where nothing is known for longer than the history's gap. */
export function columnsOf(
  { points, gap_seconds: gap }: Pick<LoadHistory, "points" | "gap_seconds">,
  lines: readonly Line[],
): Columns {
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  const add = (at: number, row: readonly (number | null)[]) => {
    times.push(at);
    for (const [index, column] of values.entries()) column.push(row[index] ?? null);
  };
  for (const point of points) {
    const row = lines.map(({ column }) => point[column]);
    if (row.every((value) => value === null)) continue;
    const last = times.at(-1);
    if (last !== undefined && point[0] - last > gap) add(last + gap / 2, []);
    add(point[0], row);
  }
  return { times, values };
}

/** What a chart shows, for a screen reader. */
export function chartSummary({ label, lines, format }: ChartSpec, { values }: Columns, range: Range): string {
  const parts = lines.map((line, index) => {
    const known = (values[index] ?? []).filter((value) => value !== null);
    const name = lines.length > 1 ? `${line.label} ` : "";
    if (known.length === 0) return `${name}unknown`;
    return `${name}between ${format(Math.min(...known))} and ${format(Math.max(...known))}`;
  });
  return `${label} over ${range.label}: ${parts.join(", ")}`;
}
