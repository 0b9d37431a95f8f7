import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { startPolling } from "../src/app/polling";
import { fleetChanges } from "../src/app/store";

const INTERVAL = { everyMs: 60_000, afterChangeMs: 2_000 };

describe("data that no event carries", () => {
  const page = Object.assign(new EventTarget(), { hidden: false });
  const fetchData = vi.fn();
  let stop: () => void;

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("document", page);
    page.hidden = false;
    fetchData.mockClear();
    stop = startPolling(fetchData, INTERVAL);
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

  test("is fetched at once and then at the interval", () => {
    expect(fetchData).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(2 * INTERVAL.everyMs);
    expect(fetchData).toHaveBeenCalledTimes(3);
  });

  test("is fetched soon after the fleet has changed, once for a burst", () => {
    for (let n = 0; n < 100; n += 1) fleetChanges.value += 1;
    expect(fetchData).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(INTERVAL.afterChangeMs);
    expect(fetchData).toHaveBeenCalledTimes(2);
  });

  test("is fetched repeatedly while the fleet keeps changing, but not more often", () => {
    for (let second = 0; second < 10; second += 1) {
      fleetChanges.value += 1;
      vi.advanceTimersByTime(1_000);
    }
    expect(fetchData).toHaveBeenCalledTimes(1 + 5);
  });

  test("is not fetched by a hidden page, and at once when the page is visible again", () => {
    show(false);
    vi.advanceTimersByTime(10 * INTERVAL.everyMs);
    expect(fetchData).toHaveBeenCalledTimes(1);
    show(true);
    vi.advanceTimersByTime(0);
    expect(fetchData).toHaveBeenCalledTimes(2);
  });

  test("is not fetched after polling has stopped", () => {
    stop();
    fleetChanges.value += 1;
    vi.advanceTimersByTime(10 * INTERVAL.everyMs);
    expect(fetchData).toHaveBeenCalledTimes(1);
  });
});
