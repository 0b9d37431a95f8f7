import { describe, expect, test } from "vitest";
import {
  blocksOf,
  colorOfEntry,
  curveOf,
  type Days,
  daysFrom,
  inView,
  queryOfDays,
  rangeOf,
  shifted,
  ticksOf,
} from "../src/features/calendar/calendar";
import type { CalendarEntry, CalendarStep } from "../src/generated/api";

/** A Thursday at noon. */
const NOW = new Date(2026, 10, 19, 12).getTime();
const TODAY: Days = { view: "day", first: new Date(2026, 10, 19).getTime() };

function entry(id: string, from: number, to: number | null, fields: Partial<CalendarEntry> = {}): CalendarEntry {
  const at = (hour: number) => new Date(2026, 10, 19, hour).toISOString();
  return {
    id,
    name: id,
    is_batch: false,
    seats: 1,
    definition_name: "basics",
    start: at(from),
    end: to === null ? null : at(to),
    counts: { pending: 1 },
    ...fields,
  };
}

function step(hour: number, demand: number, capacity: number): CalendarStep {
  const amounts = (value: number) => ({ cpu: value, memory_gb: value, storage_gb: value, nodes: value });
  return {
    at: new Date(2026, 10, 19, hour).toISOString(),
    sessions: 1,
    demand: amounts(demand),
    capacity: amounts(capacity),
    workers_needed: 0,
    workers_possible: 9,
  };
}

describe("the days that the calendar shows", () => {
  test("today without a query, and the week of a date from Monday on", () => {
    expect(daysFrom(new URLSearchParams(), NOW)).toEqual(TODAY);
    const week = daysFrom(new URLSearchParams("view=week&date=2026-11-19"), NOW);
    expect(week.first).toBe(new Date(2026, 10, 16).getTime());
  });

  test("a query leads back to the same days, and today needs none", () => {
    expect(queryOfDays(TODAY, NOW)).toBe("");
    const later = shifted(inView(TODAY, "week"), 2);
    expect(daysFrom(new URLSearchParams(queryOfDays(later, NOW)), NOW)).toEqual(later);
  });

  test("a date that is none shows today", () => {
    expect(daysFrom(new URLSearchParams("date=tomorrow"), NOW)).toEqual(TODAY);
  });

  test("a week ends where the next one begins, also if clocks are set in it", () => {
    const week: Days = { view: "week", first: new Date(2026, 9, 19).getTime() };
    expect(rangeOf(week).end).toBe(shifted(week, 1).first);
    expect(ticksOf(week)).toHaveLength(7);
  });
});

describe("the blocks", () => {
  test("entries that overlap get rows of their own, others share one", () => {
    const blocks = blocksOf([entry("a", 4, 8), entry("b", 6, 10), entry("c", 8, 12)], TODAY, NOW);
    expect(blocks.map(({ entry: { id }, lane }) => [id, lane])).toEqual([
      ["a", 0],
      ["b", 1],
      ["c", 0],
    ]);
  });

  test("an entry without an end lasts until now", () => {
    const [block] = blocksOf([entry("a", 6, null)], TODAY, NOW);
    expect(block).toMatchObject({ left: 25, width: 25, barLeft: 0, barWidth: 100 });
  });

  test("the name of a short entry at the end of the day stays inside it, its bar where its time is", () => {
    const [block] = blocksOf([entry("a", 23, 24)], TODAY, NOW);
    expect(block).toMatchObject({ left: 88, width: 12 });
    expect(block?.barLeft).toBeCloseTo((100 * (2300 / 24 - 88)) / 12);
  });

  test("names do not overlap where times do not either", () => {
    const blocks = blocksOf([entry("a", 8, 9), entry("b", 9, 10)], TODAY, NOW);
    expect(blocks.map(({ lane }) => lane)).toEqual([0, 1]);
  });

  test("a failed seat colors its class", () => {
    expect(colorOfEntry(entry("a", 8, 9, { counts: { running: 29, failed: 1 } }))).toBe("red");
    expect(colorOfEntry(entry("a", 8, 9, { counts: { running: 29, pending: 1 } }))).toBe("green");
  });
});

describe("the demand", () => {
  test("is measured against the highest of demand and capacity", () => {
    const { bars, peak, isOver } = curveOf([step(12, 50, 100), step(18, 200, 100)], TODAY, "memory_gb");
    expect(bars.map(({ left, width }) => [left, width])).toEqual([
      [50, 25],
      [75, 25],
    ]);
    const [first, second] = bars;
    expect(second?.demand).toBeCloseTo(100 / 1.1);
    expect(first?.demand).toBeCloseTo(25 / 1.1);
    expect(first?.capacity).toBeCloseTo(50 / 1.1);
    expect(peak?.demand.memory_gb).toBe(200);
    expect(isOver).toBe(true);
  });

  test("without steps or demand there is no peak", () => {
    expect(curveOf([], TODAY, "cpu").peak).toBeNull();
    expect(curveOf([step(12, 0, 10)], TODAY, "cpu").peak).toBeNull();
  });
});
