import { describe, expect, test } from "vitest";
import { judgementOf, meaningOf, reasonText, reasonTime, staleAt } from "../src/explain";
import type { Explanation, Reason, WorkerStatus } from "../src/generated/api";
import { statusInfo } from "../src/model";
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

  test("tells no time of its own beside the one that ticks", () => {
    expect(reasonText(reason("active", null, "it was last used 3 minutes ago"))).toBe("Somebody used it");
  });

  test.each([
    ["pause", "2026-11-16T12:12:00Z", "in 12 min"],
    ["pause", "2026-11-16T11:59:00Z", "soon"],
    ["held", "2026-11-16T14:00:00Z", "another 2 h"],
    ["active", "2026-11-16T11:57:00Z", "3 min ago"],
  ])("%s at %s is %s", (code, at, text) => {
    expect(reasonTime(reason(code, at), NOW)).toBe(text);
  });

  test("without a time tells none", () => {
    expect(reasonTime(reason("status_reason"), NOW)).toBeNull();
  });
});

describe("an account", () => {
  test("is stale at the first of its moments that is to come", () => {
    const account = explanation({
      holding: [reason("active", "2026-11-16T11:57:00Z"), reason("held", "2026-11-16T14:00:00Z")],
      next: [reason("pause", "2026-11-16T12:30:00Z")],
    });
    expect(staleAt(account, NOW)).toBe(Date.parse("2026-11-16T12:30:00Z"));
  });

  test("of a pause that is due is not asked for again and again", () => {
    const account = explanation({ next: [reason("pause", new Date(NOW + 300).toISOString())] });
    expect(staleAt(account, NOW)).toBeNull();
  });

  test("explains the status in the server's words once they are there", () => {
    const status = "hibernating" as WorkerStatus;
    const account = explanation({ status, summary: "It sleeps." });
    expect(meaningOf(worker({ status }), account)).toBe("It sleeps.");
    expect(meaningOf(worker({ status: "running" }), explanation())).toBe("It runs.");
    expect(meaningOf(worker({ status: "stopped" }), explanation())).toBe(statusInfo("stopped").meaning);
    expect(meaningOf(worker({ status }), null)).toBe(statusInfo("unknown").meaning);
  });

  test("knows better than the record when a pause is due", () => {
    const running = worker({ target_pause_at: "2026-11-16T12:05:00Z" });
    const told = explanation({ next: [reason("pause", "2026-11-16T12:12:00Z")] });
    expect(judgementOf(running, null).dueAt).toBe("2026-11-16T12:05:00Z");
    expect(judgementOf(running, told).dueAt).toBe("2026-11-16T12:12:00Z");
    expect(judgementOf(running, explanation()).dueAt).toBeNull();
  });

  test("tells whether auto-pause is off for all", () => {
    const off = explanation({ holding: [reason("auto_pause_disabled")] });
    expect(judgementOf(worker(), off).isOffForAll).toBe(true);
  });
});
