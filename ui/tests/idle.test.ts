import { describe, expect, test } from "vitest";
import {
  activeHold,
  customTimeDefault,
  customTimeProblem,
  drainSentence,
  holdChoices,
  pauseIndicator,
  pauseSentence,
} from "../src/features/idle/idle";
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
    expect(sentence({ hold })).toBe("Held until 16:00, 2 h left.");
  });

  test("a hold that has ended prevents nothing", () => {
    expect(sentence({ hold: { ...hold, until: at(-1) } })).toBe("Pauses in 12 min unless used.");
  });

  test("disabled auto-pause comes before a hold, and a hold before sessions", () => {
    const everything = { hold, sessions: ["s-1"], is_idle_detection_enabled: false };
    expect(sentence(everything)).toContain("off for this worker");
    expect(sentence({ ...everything, is_idle_detection_enabled: true }, null, true)).toContain("off for all workers");
    expect(sentence({ ...everything, is_idle_detection_enabled: true })).toContain("Held");
    expect(sentence({ sessions: ["s-1", "s-2"] })).toBe("Does not pause while it has 2 sessions.");
  });

  test("without activity data no pause is announced", () => {
    expect(sentence({}, null)).toBe("No activity data yet.");
  });
});

describe("the indicator in a row", () => {
  test("shows a hold", () => {
    expect(pauseIndicator(worker({ hold }), NOW)).toEqual({ kind: "held", text: "2 h" });
  });

  test("shows a pause that is due soon, and none that is not", () => {
    expect(pauseIndicator(worker({ target_pause_at: at(12 * MINUTE) }), NOW)).toEqual({
      kind: "pausing",
      text: "12 min",
    });
    expect(pauseIndicator(worker({ target_pause_at: at(-MINUTE) }), NOW)).toEqual({ kind: "pausing", text: "soon" });
    expect(pauseIndicator(worker({ target_pause_at: at(16 * MINUTE) }), NOW)).toBeNull();
  });

  test("shows nothing for a worker that cannot be paused", () => {
    expect(pauseIndicator(worker({ hold, status: "stopped" }), NOW)).toBeNull();
    expect(pauseIndicator(worker({ target_pause_at: at(MINUTE), desired_status: "stopped" }), NOW)).toBeNull();
    expect(pauseIndicator(worker({ target_pause_at: at(MINUTE), sessions: ["s-1"] }), NOW)).toBeNull();
  });
});

describe("a hold", () => {
  test("lasts an hour, four hours or until the end of the local day", () => {
    const ends = holdChoices(NOW).map(({ until }) => until);
    expect(ends).toEqual([NOW + HOUR, NOW + 4 * HOUR, new Date(2026, 10, 17, 0, 0).getTime()]);
  });

  test("every choice is in the future, a minute before midnight too", () => {
    const late = new Date(2026, 10, 16, 23, 59, 30).getTime();
    expect(holdChoices(late).every(({ until }) => until > late)).toBe(true);
  });

  test("a custom time starts an hour from now", () => {
    expect(customTimeDefault(NOW)).toBe("2026-11-16T15:00");
    expect(customTimeProblem(customTimeDefault(NOW), NOW)).toBeNull();
  });

  test.each([
    ["", "Choose a day"],
    ["2026-11-16T13:59", "future"],
  ])("%s is no time to hold until", (value, hint) => {
    expect(customTimeProblem(value, NOW)).toContain(hint);
  });

  test("a hold ends at its moment", () => {
    expect(activeHold(worker({ hold }), NOW)).toBe(hold);
    expect(activeHold(worker({ hold }), NOW + 2 * HOUR)).toBeNull();
  });
});

describe("a drain", () => {
  test("says what it waits for and how long at most", () => {
    const draining = worker({ status: "draining", sessions: ["s-1", "s-2"], drain_deadline_at: at(4 * HOUR) });
    expect(drainSentence(draining, NOW)).toBe("Waits for 2 sessions, another 4 h at most.");
    expect(drainSentence(draining, NOW + 5 * HOUR)).toBe("Drain timeout reached with 2 sessions.");
  });

  test("without sessions it does not wait", () => {
    expect(drainSentence(worker({ status: "draining", drain_deadline_at: at(HOUR) }), NOW)).toContain("stops now");
  });
});
