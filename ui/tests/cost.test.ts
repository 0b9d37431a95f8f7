import { describe, expect, test } from "vitest";
import { byCost, formatHours, formatMonth, shareOf } from "../src/features/cost/cost";
import type { CostLine } from "../src/generated/api";

function line(key: string, usd_this_month: number): CostLine {
  return {
    key,
    usd_this_month,
    usd_per_hour: 0,
    usd_saved_this_month: 0,
    running_hours_this_month: 0,
    paused_hours_this_month: 0,
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

  test("hours that would round to zero are not shown as zero", () => {
    expect([0, 0.04, 7.26, 1_234.5].map(formatHours)).toEqual(["0 h", "<0.1 h", "7.3 h", "1,235 h"]);
  });
});
