import { describe, expect, it } from "vitest";
import { lagText, processColor, scanText, workText } from "../src/features/system/system";
import type { ControllerState, ProcessReport } from "../src/generated/api";

const CONTROLLER: ControllerState = {
  is_leader: true,
  epoch: 3,
  coordination: "elected",
  is_watching: true,
  last_reconciliation: null,
  in_progress: 1,
  waiting: 2,
  scheduled: 3,
  retrying: 0,
};

const REPORT: ProcessReport = {
  service: "worker-controller",
  instance_id: "a",
  version: "1",
  started_at: "2026-01-01T00:00:00Z",
  loop_lag_seconds: 0.0124,
  frozen: [],
  silent_loops: [],
  controller: CONTROLLER,
  finds: null,
};

describe("a process", () => {
  it("says what it works on, and what it tries again only if there is something", () => {
    expect(workText(CONTROLLER)).toBe("leads · 1 in progress · 2 waiting · 3 scheduled");
    expect(workText({ ...CONTROLLER, is_leader: false, retrying: 4 })).toContain("standby");
    expect(workText({ ...CONTROLLER, retrying: 4 })).toContain("4 retrying");
    expect(workText(null)).toBe("");
    expect(lagText(REPORT.loop_lag_seconds)).toBe("12 ms late");
  });

  it("is green while nothing is missing", () => {
    const view = { report: REPORT, reported_at: "2026-01-01T00:00:00Z", is_silent: false };
    expect(processColor(view)).toBe("green");
    expect(processColor({ ...view, report: { ...REPORT, frozen: ["etcd"] } })).toBe("orange");
    expect(processColor({ ...view, is_silent: true })).toBe("red");
  });
});

it("a scan says what it found, or why it failed", () => {
  const scan = { region: "r", at: "2026-01-01T00:00:00Z", error: "", found: 0, imported: 0 };
  expect(scanText(scan)).toBe("nothing new");
  expect(scanText({ ...scan, found: 2, imported: 1 })).toBe("2 instances found, 1 imported");
  expect(scanText({ ...scan, error: "refused" })).toBe("refused");
});
