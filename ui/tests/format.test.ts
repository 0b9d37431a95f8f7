import { describe, expect, test } from "vitest";
import { formatAgo, formatCount, formatDuration, formatUsd, formatUsdPerMonth } from "../src/format";

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

describe("money", () => {
  test("prices below a dollar keep the digits that tell them apart", () => {
    expect(formatUsd(0.0104)).toBe("$0.0104");
    expect(formatUsd(3.9641)).toBe("$3.96");
    expect(formatUsd(0)).toBe("$0.00");
  });

  test("a month has 730 hours", () => {
    expect(formatUsdPerMonth(4)).toBe("$2,920");
  });
});

test("one worker, two workers", () => {
  expect([formatCount(1, "worker"), formatCount(1_000, "worker")]).toEqual(["1 worker", "1,000 workers"]);
});
