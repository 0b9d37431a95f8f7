import { beforeEach, describe, expect, test } from "vitest";
import {
  applyHistory,
  applySamples,
  clearInactiveLoads,
  formatPercent,
  linkMeaning,
  linkOf,
  loadOf,
  retainLoads,
  sparklinePath,
  withSample,
} from "../src/features/worker/live";
import type { Sample } from "../src/generated/api";
import { MAX_LOAD_POINTS } from "../src/generated/rules";
import { worker } from "./examples";

const T0 = Date.parse("2026-01-01T00:00:00Z");

function sample(second: number, fields: Partial<Sample> = {}): Sample {
  return {
    worker_id: "w-1",
    collected_at: new Date(T0 + second * 1_000).toISOString(),
    source: "websocket",
    cpu_utilization: second,
    ...fields,
  };
}

const cpus = (): (number | null)[] => [...(loadOf("w-1").value?.points ?? [])].map(({ cpu }) => cpu);

describe("the load", () => {
  beforeEach(() => retainLoads(new Set()));

  test("each sample adds a point, and the oldest leave", () => {
    applySamples(Array.from({ length: MAX_LOAD_POINTS + 5 }, (_, second) => sample(second)));
    expect(cpus()).toHaveLength(MAX_LOAD_POINTS);
    expect(loadOf("w-1").value?.newest.cpu).toBe(MAX_LOAD_POINTS + 4);
  });

  test("a sample that is not newer changes nothing", () => {
    const load = withSample(null, sample(10));
    expect(withSample(load, sample(10))).toBe(load);
    expect(withSample(load, sample(4))).toBe(load);
  });

  test("what is left out is unknown, never zero", () => {
    const load = withSample(null, sample(1));
    expect(load.newest.memory).toBeNull();
    expect(formatPercent(load.newest.memory)).toBe("—");
  });

  test("CloudWatch counts only while CML sends nothing", () => {
    const load = withSample(null, sample(0));
    expect(withSample(load, sample(60, { source: "cloudwatch" }))).toBe(load);
    expect(withSample(load, sample(200, { source: "cloudwatch" })).points).toHaveLength(2);
  });

  test("a response fills in earlier points, and the stream wins", () => {
    applySamples([sample(20), sample(30)]);
    applyHistory("w-1", {
      worker_id: "w-1",
      samples: [],
      points: [5, 10, 20, 25].map((second) => [T0 / 1_000 + second, 99, null, null]),
    });
    expect(cpus()).toEqual([99, 99, 20, 30]);
  });

  test("a worker that stops has no load any more", () => {
    applySamples([sample(1)]);
    clearInactiveLoads([worker({ id: "w-1", status: "draining" })]);
    expect(loadOf("w-1").value).not.toBeNull();
    clearInactiveLoads([worker({ id: "w-1", status: "stopping" })]);
    expect(loadOf("w-1").value).toBeNull();
  });
});

describe("the connection", () => {
  test.each([
    ["running", true, "websocket"],
    ["draining", true, "websocket"],
    ["running", false, "polling"],
    ["stopped", true, "off"],
    ["pending", false, "off"],
  ] as const)("%s with a connection %s is %s", (status, ws_connected, link) => {
    expect(linkOf(worker({ status, ws_connected }))).toBe(link);
  });

  test("while it is polled it says why", () => {
    expect(linkMeaning(worker({ status: "running", ws_status: "failed" }))).toContain("failed");
  });
});

describe("a sparkline", () => {
  const at = (second: number, cpu: number | null) => ({ at: T0 + second * 1_000, cpu, memory: null, disk: null });

  test("runs from left to right, high load at the top", () => {
    expect(sparklinePath([at(0, 0), at(5, 50), at(10, 100)], "cpu")).toBe("M0.0 100.0L50.0 50.0L100.0 0.0");
  });

  test("has a gap where nothing is known, and stays inside whatever is measured", () => {
    expect(sparklinePath([at(0, -5), at(5, null), at(10, 250)], "cpu")).toBe("M0.0 100.0M100.0 0.0");
  });

  test("of nothing is nothing", () => {
    expect(sparklinePath([], "cpu")).toBe("");
    expect(sparklinePath([at(0, null)], "cpu")).toBe("");
  });
});
