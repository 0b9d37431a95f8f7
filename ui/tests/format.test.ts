import { describe, expect, test } from "vitest";
import {
  formatAgo,
  formatCount,
  formatDuration,
  formatRemaining,
  formatRemainingShort,
  formatSum,
  formatUntil,
  formatUsd,
  formatUsdPerMonth,
} from "../src/kit/format";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

describe("times", () => {
  test.each([
    [42 * SECOND, "42s"],
    [3 * MINUTE + 59 * SECOND, "3m"],
    [2 * HOUR + 5 * MINUTE, "2h 05m"],
    [5 * DAY + 3 * HOUR, "5d 3h"],
    [5 * DAY, "5d"],
    [40 * DAY + 3 * HOUR, "40d"],
    [-5 * SECOND, "0s"],
  ])("%d ms last %s", (span, text) => {
    expect(formatDuration(span)).toBe(text);
  });

  test.each([
    [0, "just now"],
    [-HOUR, "just now"],
    [12 * SECOND, "12 s ago"],
    [90 * SECOND, "1 min ago"],
    [25 * HOUR, "1 d ago"],
  ])("%d ms ago reads %s", (span, text) => {
    expect(formatAgo(0, span)).toBe(text);
  });
});

describe("the remaining time", () => {
  test.each([
    [-SECOND, "0 s"],
    [400, "1 s"],
    [59 * SECOND, "59 s"],
    [11 * MINUTE + SECOND, "12 min"],
    [HOUR - SECOND, "1 h"],
    [2 * HOUR + 5 * MINUTE, "2 h 5 min"],
    [DAY, "1 d"],
    [3 * DAY + 3 * HOUR + MINUTE, "3 d 4 h"],
  ])("%d ms are never rounded down: %s", (span, text) => {
    expect(formatRemaining(span)).toBe(text);
  });

  test.each([
    [12 * MINUTE, "12 min"],
    [HOUR - SECOND, "1 h"],
    [HOUR, "1 h"],
    [2 * HOUR + 59 * MINUTE, "3 h"],
    [30 * HOUR, "2 d"],
  ])("%d ms in one unit are %s", (span, text) => {
    expect(formatRemainingShort(span)).toBe(text);
  });

  test("a time of today needs no day", () => {
    const now = new Date(2026, 10, 16, 9, 0).getTime();
    expect(formatUntil(new Date(2026, 10, 16, 18, 0).getTime(), now)).toBe("18:00");
    expect(formatUntil(new Date(2026, 10, 17, 8, 30).getTime(), now)).toContain("17");
  });
});

describe("money", () => {
  test("prices below a dollar keep the digits that distinguish them", () => {
    expect(formatUsd(0.0104)).toBe("$0.0104");
    expect(formatUsd(3.9641)).toBe("$3.96");
    expect(formatUsd(0)).toBe("$0.00");
  });

  test("a sum that is less than a cent is not nothing", () => {
    expect([0, 0.004, 12.345, 1_234.5].map(formatSum)).toEqual(["$0.00", "<$0.01", "$12.35", "$1,235"]);
  });

  test("a month has 730 hours", () => {
    expect(formatUsdPerMonth(4)).toBe("$2,920");
  });
});

test("one worker, two workers", () => {
  expect([formatCount(1, "worker"), formatCount(1_000, "worker")]).toEqual(["1 worker", "1,000 workers"]);
});
