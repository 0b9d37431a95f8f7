import { describe, expect, test } from "vitest";
import { CHARTS, type ChartSpec, chartSummary, columnsOf, rangeOf } from "../src/features/worker/load-history";
import type { HistoryPoint } from "../src/generated/api";

const [cpu, , , network] = CHARTS as readonly [ChartSpec, ChartSpec, ChartSpec, ChartSpec];

function history(...points: HistoryPoint[]) {
  return { points, gap_seconds: 180 };
}

describe("the columns of a chart", () => {
  test("a line ends where nothing is known for long", () => {
    const known = history(
      [0, 1, null, null, null, null],
      [180, 2, null, null, null, null],
      [400, 3, null, null, null, null],
    );
    expect(columnsOf(known, cpu.lines)).toEqual({ times: [0, 180, 270, 400], values: [[1, 2, null, 3]] });
  });

  test("a measure that is taken seldom is one line all the same", () => {
    const known = history([0, 1, null, null, 7, 8], [10, 2, null, null, null, null], [60, 3, null, null, 9, 10]);
    expect(columnsOf(known, network.lines)).toEqual({
      times: [0, 60],
      values: [
        [7, 9],
        [8, 10],
      ],
    });
  });

  test("nothing is known of nothing", () => {
    expect(columnsOf(history(), network.lines)).toEqual({ times: [], values: [[], []] });
  });
});

describe("what a chart says", () => {
  test("its extremes, and what is unknown", () => {
    const known = history([0, 4, null, null, 7_000, null], [10, 92.4, null, null, 1_200_000, null]);
    const range = rangeOf("24h");
    expect(chartSummary(cpu, columnsOf(known, cpu.lines), range)).toBe("CPU over 24 hours: between 4% and 92%");
    expect(chartSummary(network, columnsOf(known, network.lines), range)).toBe(
      "Network over 24 hours: in between 7 kB/s and 1.2 MB/s, out unknown",
    );
  });

  test("a range that the URL does not name is an hour", () => {
    expect(rangeOf(null).id).toBe("1h");
    expect(rangeOf("year").id).toBe("1h");
    expect(rangeOf("7d").id).toBe("7d");
  });
});
