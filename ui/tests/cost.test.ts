import { describe, expect, test } from "vitest";
import { byCost, daysOf, formatDay, formatDisks, formatHours, formatMonth, shareOf } from "../src/features/cost/cost";
import type { CostDay, CostLine } from "../src/generated/api";

function line(key: string, usd_this_month: number): CostLine {
  return {
    key,
    usd_this_month,
    usd_per_hour: 0,
    usd_saved_this_month: 0,
    running_hours_this_month: 0,
    paused_hours_this_month: 0,
    usd_disk_this_month: 0,
    disk_hours_this_month: 0,
    unknown_disks: 0,
  };
}

describe("cost", () => {
  test("what costs most comes first, ties by name", () => {
    expect(byCost([line("b", 1), line("c", 5), line("a", 1)]).map(({ key }) => key)).toEqual(["c", "a", "b"]);
  });

  test("the share of a total of zero is zero", () => {
    expect(shareOf(line("a", 0), line("total", 0))).toBe(0);
    expect(shareOf(line("a", 1), line("total", 4))).toBe(25);
  });

  test("a month is shown by its name, in every time zone", () => {
    expect(formatMonth("2026-11")).toBe("November 2026");
  });

  test("disks of unknown cost are named and are not shown as free", () => {
    const disks = { ...line("a", 5), usd_disk_this_month: 1.5 };
    expect(formatDisks(disks)).toBe("$1.50");
    expect(formatDisks({ ...disks, unknown_disks: 2 })).toBe("$1.50 + 2 unknown");
    expect(formatDisks({ ...disks, usd_disk_this_month: null, unknown_disks: 2 })).toBe("unknown");
  });

  test("a month has a place for each of its days, empty for those to come", () => {
    const first: CostDay = { day: "2028-02-01", usd: 1, usd_disk: 0, usd_saved: 0 };
    const report = {
      month: "2028-02",
      months: [],
      days: [first],
      usd_of_unknown_day: 0,
      total: line("total", 1),
      by_worker: [],
      by_template: [],
      by_region: [],
    };
    const days = daysOf(report);
    expect([days.length, days[0], days[1]]).toEqual([29, first, null]);
    expect(formatDay(first.day)).toBe("Feb 1");
  });

  test("hours that would round to zero are not shown as zero", () => {
    expect([0, 0.04, 7.26, 1_234.5].map(formatHours)).toEqual(["0 h", "<0.1 h", "7.3 h", "1,235 h"]);
  });
});
