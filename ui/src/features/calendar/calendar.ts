/** The rules of the calendar that need no browser: which days it shows, and where what is booked is drawn. */

import type { CalendarEntry, CalendarStep, SessionStatus } from "../../generated/api";
import type { Color } from "../../generated/rules";
import { sessionInfo } from "../lablets/model";

export type View = "day" | "week";

/** What the user chose to see; the URL has it. */
export interface Days {
  readonly view: View;
  /** Midnight of the first day in the browser's zone. */
  readonly first: number;
}

export interface Range {
  readonly begin: number;
  readonly end: number;
  readonly stepMinutes: number;
}

/** The server computes at most 400 steps: a quarter of an hour in a day, an hour in a week. */
const STEP_MINUTES: Readonly<Record<View, number>> = { day: 15, week: 60 };
const LENGTH_DAYS: Readonly<Record<View, number>> = { day: 1, week: 7 };

export function daysFrom(query: URLSearchParams, now: number): Days {
  const view = query.get("view") === "week" ? "week" : "day";
  const chosen = /^(\d{4})-(\d\d)-(\d\d)$/.exec(query.get("date") ?? "");
  const [, year, month, day] = chosen?.map(Number) ?? [];
  const moment = year === undefined ? now : new Date(year, (month ?? 1) - 1, day ?? 1).getTime();
  return { view, first: firstDay(view, moment) };
}

/** The day, or the Monday of its week. */
function firstDay(view: View, moment: number): number {
  const date = new Date(moment);
  const back = view === "week" ? (date.getDay() + 6) % 7 : 0;
  return midnight(date, -back);
}

/** By the calendar: a day on which clocks are set is shorter or longer than 24 hours. */
function midnight(date: Date, daysLater: number): number {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + daysLater).getTime();
}

export function queryOfDays({ view, first }: Days, now: number): string {
  const query = new URLSearchParams();
  if (view !== "day") query.set("view", view);
  if (first !== firstDay(view, now)) query.set("date", dateText(first));
  return query.toString();
}

function dateText(moment: number): string {
  const date = new Date(moment);
  const two = (value: number) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function inView(days: Days, view: View): Days {
  return { view, first: firstDay(view, days.first) };
}

/** The same view, so many days or weeks later. */
export function shifted({ view, first }: Days, by: number): Days {
  return { view, first: midnight(new Date(first), by * LENGTH_DAYS[view]) };
}

export function rangeOf({ view, first }: Days): Range {
  return { begin: first, end: midnight(new Date(first), LENGTH_DAYS[view]), stepMinutes: STEP_MINUTES[view] };
}

/** The share of the range that has passed at a moment, from 0 to 100. */
export function percentAt({ begin, end }: Range, moment: number): number {
  return (100 * Math.min(Math.max(moment - begin, 0), end - begin)) / (end - begin);
}

export interface Tick {
  readonly at: number;
  readonly percent: number;
}

/** Every three hours of a day, every day of a week. */
export function ticksOf({ view, first }: Days): readonly Tick[] {
  const range = rangeOf({ view, first });
  const date = new Date(first);
  const moments =
    view === "week"
      ? Array.from({ length: 7 }, (_, day) => midnight(date, day))
      : Array.from({ length: 8 }, (_, n) =>
          new Date(date.getFullYear(), date.getMonth(), date.getDate(), 3 * n).getTime(),
        );
  return moments.map((at) => ({ at, percent: percentAt(range, at) }));
}

// What is booked.

export interface Block {
  readonly entry: CalendarEntry;
  /** The place that its bar and its name take together. */
  readonly left: number;
  readonly width: number;
  /** Its time, in percent of that place. */
  readonly barLeft: number;
  readonly barWidth: number;
  /** The row, from 0: blocks of one row do not overlap. */
  readonly lane: number;
}

/** A name can be read and pressed in this, however short its time is. */
const NAME_WIDTH: Readonly<Record<View, number>> = { day: 12, week: 14 };
const MIN_BAR_WIDTH = 0.4;

/** Entries in the order of their start; each takes the first row that is free. */
export function blocksOf(entries: readonly CalendarEntry[], days: Days, now: number): readonly Block[] {
  const range = rangeOf(days);
  const lanes: number[] = [];
  return [...entries]
    .sort((a, b) => Date.parse(a.start) - Date.parse(b.start))
    .map((entry) => {
      const start = Date.parse(entry.start);
      const end = entry.end === null ? Math.max(now, start) : Date.parse(entry.end);
      const begin = percentAt(range, start);
      const length = Math.max(percentAt(range, end) - begin, MIN_BAR_WIDTH);
      const width = Math.max(length, NAME_WIDTH[days.view]);
      const left = Math.min(begin, 100 - width);
      const free = lanes.findIndex((taken) => taken <= left);
      const lane = free < 0 ? lanes.length : free;
      lanes[lane] = left + width;
      return { entry, left, width, barLeft: (100 * (begin - left)) / width, barWidth: (100 * length) / width, lane };
    });
}

/** Failed seats first, then what most seats are. */
export function colorOfEntry({ counts }: CalendarEntry): Color {
  const statuses = Object.entries(counts) as [SessionStatus, number][];
  if (statuses.some(([status]) => status === "failed" || status === "expired")) return "red";
  const most = statuses.sort(([, a], [, b]) => b - a)[0];
  return most === undefined ? "grey" : sessionInfo(most[0]).color;
}

// Demand and capacity.

export const DIMENSIONS = {
  memory_gb: { label: "Memory", unit: "GB" },
  cpu: { label: "CPU", unit: "CPU" },
  storage_gb: { label: "Disk", unit: "GB" },
  nodes: { label: "Nodes", unit: "nodes" },
} as const;

export type Dimension = keyof typeof DIMENSIONS;

/** The chart is higher than the highest value by this: a line at its edge could not be seen. */
const HEADROOM = 1.1;

/** One step as a rectangle: its place in percent of the range, its heights in percent of the chart. */
export interface Bar {
  readonly at: string;
  readonly left: number;
  readonly width: number;
  readonly demand: number;
  readonly capacity: number;
}

export interface Curve {
  readonly bars: readonly Bar[];
  /** The step with the highest demand; null if nothing is booked. */
  readonly peak: CalendarStep | null;
  readonly isOver: boolean;
}

export function curveOf(steps: readonly CalendarStep[], days: Days, dimension: Dimension): Curve {
  const range = rangeOf(days);
  const highest = Math.max(1, ...steps.map(({ demand, capacity }) => Math.max(demand[dimension], capacity[dimension])));
  const top = HEADROOM * highest;
  const bars = steps.map((step, index) => {
    const at = Date.parse(step.at);
    const next = steps[index + 1];
    const left = percentAt(range, at);
    const right = percentAt(range, next === undefined ? range.end : Date.parse(next.at));
    return {
      at: step.at,
      left,
      width: right - left,
      demand: (100 * step.demand[dimension]) / top,
      capacity: (100 * step.capacity[dimension]) / top,
    };
  });
  const [first, ...others] = steps;
  const peak = first && others.reduce((a, b) => (b.demand[dimension] > a.demand[dimension] ? b : a), first);
  return {
    bars,
    peak: peak !== undefined && peak.demand[dimension] > 0 ? peak : null,
    isOver: bars.some(({ demand, capacity }) => demand > capacity),
  };
}

export function amountText(amount: number, dimension: Dimension): string {
  const { unit } = DIMENSIONS[dimension];
  return `${amount.toLocaleString("en-US", { maximumFractionDigits: 1 })} ${unit}`;
}
