import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { keepFresh } from "../src/refresh";
import { moves } from "../src/store";

const PACE = { everyMs: 60_000, soonMs: 2_000 };

describe("what no event brings", () => {
  const page = Object.assign(new EventTarget(), { hidden: false });
  const ask = vi.fn();
  let stop: () => void;

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("document", page);
    page.hidden = false;
    ask.mockClear();
    stop = keepFresh(ask, PACE);
  });

  afterEach(() => {
    stop();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  function show(isShown: boolean): void {
    page.hidden = !isShown;
    page.dispatchEvent(new Event("visibilitychange"));
  }

  test("is asked for at once and then at a calm pace", () => {
    expect(ask).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(2 * PACE.everyMs);
    expect(ask).toHaveBeenCalledTimes(3);
  });

  test("is asked for soon after the fleet moved, once for a burst", () => {
    for (let n = 0; n < 100; n += 1) moves.value += 1;
    expect(ask).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(PACE.soonMs);
    expect(ask).toHaveBeenCalledTimes(2);
  });

  test("is asked for again and again while the fleet goes on moving, but not more often", () => {
    for (let second = 0; second < 10; second += 1) {
      moves.value += 1;
      vi.advanceTimersByTime(1_000);
    }
    expect(ask).toHaveBeenCalledTimes(1 + 5);
  });

  test("is not asked for by a page that nobody sees, and at once when it is seen again", () => {
    show(false);
    vi.advanceTimersByTime(10 * PACE.everyMs);
    expect(ask).toHaveBeenCalledTimes(1);
    show(true);
    vi.advanceTimersByTime(0);
    expect(ask).toHaveBeenCalledTimes(2);
  });

  test("is not asked for any more once nobody shows it", () => {
    stop();
    moves.value += 1;
    vi.advanceTimersByTime(10 * PACE.everyMs);
    expect(ask).toHaveBeenCalledTimes(1);
  });
});
