import { describe, expect, test } from "vitest";
import { meaningOf, pauseForecast, reasonText, reasonTime, staleAt } from "../src/features/worker/explain";
import { statusInfo } from "../src/features/worker/model";
import type { Explanation, Reason, WorkerStatus } from "../src/generated/api";
import { worker } from "./examples";

const NOW = Date.parse("2026-11-16T12:00:00Z");

function reason(code: string, at: string | null = null, text = "it is so"): Reason {
  return { code, text, at };
}

function explanation(fields: Partial<Explanation> = {}): Explanation {
  return {
    worker_id: "w-1",
    status: "running",
    desired_status: "running",
    code: "running",
    summary: "It runs.",
    holding: [],
    next: [],
    ...fields,
  };
}

describe("a reason", () => {
  test("reads as a sentence, unless it begins with a name", () => {
    expect(reasonText(reason("snoozed", null, "it was resumed not long ago"))).toBe("It was resumed not long ago");
    expect(reasonText(reason("held", null, "ada keeps it running (exam)"))).toBe("ada keeps it running (exam)");
  });

  test("contains no fixed time beside the ticking one", () => {
    expect(reasonText(reason("active", null, "it was last used 3 minutes ago"))).toBe("Last used");
  });

  test.each([
    ["pause", "2026-11-16T12:12:00Z", "in 12 min"],
    ["pause", "2026-11-16T11:59:00Z", "soon"],
    ["held", "2026-11-16T14:00:00Z", "2 h left"],
    ["active", "2026-11-16T11:57:00Z", "3 min ago"],
  ])("%s at %s is %s", (code, at, text) => {
    expect(reasonTime(reason(code, at), NOW)).toBe(text);
  });

  test("without a time shows none", () => {
    expect(reasonTime(reason("status_reason"), NOW)).toBeNull();
  });
});

describe("an explanation", () => {
  test("is stale at the first of its future times", () => {
    const loaded = explanation({
      holding: [reason("active", "2026-11-16T11:57:00Z"), reason("held", "2026-11-16T14:00:00Z")],
      next: [reason("pause", "2026-11-16T12:30:00Z")],
    });
    expect(staleAt(loaded, NOW)).toBe(Date.parse("2026-11-16T12:30:00Z"));
  });

  test("of a pause that is due is not fetched again and again", () => {
    const loaded = explanation({ next: [reason("pause", new Date(NOW + 300).toISOString())] });
    expect(staleAt(loaded, NOW)).toBeNull();
  });

  test("explains the status with the server's sentence once it is loaded", () => {
    const status = "hibernating" as WorkerStatus;
    const loaded = explanation({ status, summary: "It sleeps." });
    expect(meaningOf(worker({ status }), loaded)).toBe("It sleeps.");
    expect(meaningOf(worker({ status: "running" }), explanation())).toBe("It runs.");
    expect(meaningOf(worker({ status: "stopped" }), explanation())).toBe(statusInfo("stopped").meaning);
    expect(meaningOf(worker({ status }), null)).toBe(statusInfo("unknown").meaning);
  });

  test("wins over the record about when a pause is due", () => {
    const running = worker({ target_pause_at: "2026-11-16T12:05:00Z" });
    const streamed = explanation({ next: [reason("pause", "2026-11-16T12:12:00Z")] });
    expect(pauseForecast(running, null).dueAt).toBe("2026-11-16T12:05:00Z");
    expect(pauseForecast(running, streamed).dueAt).toBe("2026-11-16T12:12:00Z");
    expect(pauseForecast(running, explanation()).dueAt).toBeNull();
  });

  test("contains whether auto-pause is off for all workers", () => {
    const off = explanation({ holding: [reason("auto_pause_disabled")] });
    expect(pauseForecast(worker(), off).isOffForAll).toBe(true);
  });
});
