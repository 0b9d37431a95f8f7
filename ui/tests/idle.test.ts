import { describe, expect, test } from "vitest";
import {
  drainSentence,
  holdChoices,
  holdNow,
  idleSign,
  ownTimeDefault,
  ownTimeProblem,
  pauseSentence,
} from "../src/idle";
import { worker } from "./examples";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const NOW = new Date(2026, 10, 16, 14, 0).getTime();

function at(left: number): string {
  return new Date(NOW + left).toISOString();
}

const hold = { until: at(2 * HOUR), by: "ada", reason: "exam" };

function sentence(
  fields: Parameters<typeof worker>[0],
  dueAt: string | null = at(12 * MINUTE),
  isOffForAll = false,
): string {
  return pauseSentence(worker(fields), { dueAt, isOffForAll }, NOW);
}

describe("the sentence about pausing", () => {
  test("counts down to the pause", () => {
    expect(sentence({})).toBe("Pauses in 12 min unless used.");
  });

  test("a pause that is due comes soon, whatever the clock says", () => {
    expect(sentence({}, at(-MINUTE))).toContain("Pauses soon unless used");
  });

  test("a hold says until when and how long that is", () => {
    expect(sentence({ hold })).toBe("Kept running until 16:00, another 2 h.");
  });

  test("a hold that is over keeps nothing", () => {
    expect(sentence({ hold: { ...hold, until: at(-1) } })).toBe("Pauses in 12 min unless used.");
  });

  test("what is switched off comes before a hold, and a hold before sessions", () => {
    const everything = { hold, sessions: ["s-1"], is_idle_detection_enabled: false };
    expect(sentence(everything)).toContain("off for this worker");
    expect(sentence({ ...everything, is_idle_detection_enabled: true }, null, true)).toContain("off for all workers");
    expect(sentence({ ...everything, is_idle_detection_enabled: true })).toContain("Kept running");
    expect(sentence({ sessions: ["s-1", "s-2"] })).toBe("Does not pause while 2 sessions use it.");
  });

  test("without a judgement nothing is promised", () => {
    expect(sentence({}, null)).toBe("Whether it is used is not known yet.");
  });
});

describe("the sign in a row", () => {
  test("shows a hold", () => {
    expect(idleSign(worker({ hold }), NOW)).toEqual({ kind: "held", text: "2 h" });
  });

  test("shows a pause that is near, and none that is far", () => {
    expect(idleSign(worker({ target_pause_at: at(12 * MINUTE) }), NOW)).toEqual({ kind: "pausing", text: "12 min" });
    expect(idleSign(worker({ target_pause_at: at(-MINUTE) }), NOW)).toEqual({ kind: "pausing", text: "soon" });
    expect(idleSign(worker({ target_pause_at: at(16 * MINUTE) }), NOW)).toBeNull();
  });

  test("shows nothing where nothing can be paused", () => {
    expect(idleSign(worker({ hold, status: "stopped" }), NOW)).toBeNull();
    expect(idleSign(worker({ target_pause_at: at(MINUTE), desired_status: "stopped" }), NOW)).toBeNull();
    expect(idleSign(worker({ target_pause_at: at(MINUTE), sessions: ["s-1"] }), NOW)).toBeNull();
  });
});

describe("keeping a worker running", () => {
  test("for an hour, four hours or the rest of the day here", () => {
    const ends = holdChoices(NOW).map(({ until }) => until);
    expect(ends).toEqual([NOW + HOUR, NOW + 4 * HOUR, new Date(2026, 10, 17, 0, 0).getTime()]);
  });

  test("every choice is still to come, a minute before midnight too", () => {
    const late = new Date(2026, 10, 16, 23, 59, 30).getTime();
    expect(holdChoices(late).every(({ until }) => until > late)).toBe(true);
  });

  test("a time of one's own begins an hour from now", () => {
    expect(ownTimeDefault(NOW)).toBe("2026-11-16T15:00");
    expect(ownTimeProblem(ownTimeDefault(NOW), NOW)).toBeNull();
  });

  test.each([
    ["", "Choose a day"],
    ["2026-11-16T13:59", "still to come"],
  ])("%s is no time to hold until", (value, hint) => {
    expect(ownTimeProblem(value, NOW)).toContain(hint);
  });

  test("a hold ends at its moment", () => {
    expect(holdNow(worker({ hold }), NOW)).toBe(hold);
    expect(holdNow(worker({ hold }), NOW + 2 * HOUR)).toBeNull();
  });
});

describe("a drain", () => {
  test("says for whom it waits and how long at most", () => {
    const draining = worker({ status: "draining", sessions: ["s-1", "s-2"], drain_deadline_at: at(4 * HOUR) });
    expect(drainSentence(draining, NOW)).toBe("Waits for 2 sessions, another 4 h at most.");
    expect(drainSentence(draining, NOW + 5 * HOUR)).toBe("Waits for 2 sessions no longer.");
  });

  test("without sessions it waits for nobody", () => {
    expect(drainSentence(worker({ status: "draining", drain_deadline_at: at(HOUR) }), NOW)).toContain("stops now");
  });
});
