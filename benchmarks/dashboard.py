"""What the dashboard costs a browser: first load, events until they are on the screen, scripting and memory.

A control plane with many imported workers, whose load is reported at the real rate, in front of a Chromium.
The page measures itself: an event counts from its arrival in the page until the animation frame that paints
the next change of the document; each batch of load has one worker that is in view. `--minutes 30` shows
whether memory grows.
"""

import argparse
import asyncio
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.async_api import CDPSession, Page, async_playwright

from e2e.conftest import CHROMIUM, FLAGS
from lcm.core.clock import SystemClock
from lcm.worker_controller.monitoring.config import MonitoringConfig
from report import percentile, report
from support.lone_plane import LonePlane, lone_plane

ROUNDS_PER_SECOND = 5
IMPORTED_AT_ONCE = 25

WATCH = """
(() => {
  const seen = { interactive: null, delays: [], longest: 0, frames: 0 };
  let arrived = null;
  window.measured = seen;
  let last = performance.now();
  const frame = (now) => {
    seen.longest = Math.max(seen.longest, now - last);
    seen.frames += 1;
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  const add = EventSource.prototype.addEventListener;
  EventSource.prototype.addEventListener = function (type, listener, ...rest) {
    const timed = (event) => {
      if (type.startsWith("worker.")) arrived ??= [seen.frames, performance.now()];
      listener(event);
    };
    return add.call(this, type, timed, ...rest);
  };
  new MutationObserver(() => {
    if (arrived === null) return;
    const [before, at] = arrived;
    arrived = null;
    requestAnimationFrame((now) => seen.delays.push([seen.frames - before, now - at]));
  }).observe(document, { childList: true, subtree: true, characterData: true, attributes: true });
  new MutationObserver((_, observer) => {
    if (document.querySelector("[data-worker-name]") === null) return;
    seen.interactive = performance.now();
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true });
})();
"""
LOADED = """
[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter(({ name }) => !name.includes("/api/"))
  .reduce((sum, { transferSize }) => sum + transferSize, 0)
"""


async def import_workers(plane: LonePlane, count: int) -> list[str]:
    ids: list[str] = []
    for first in range(0, count, IMPORTED_AT_ONCE):
        numbers = range(first, min(first + IMPORTED_AT_ONCE, count))
        found = [{"instance": instance(number)} for number in numbers]
        status, result = await plane.reported("POST", "/workers/bulk-import", {"instances": found})
        assert status == 200, result
        ids += [item["worker_id"] for item in result["items"]]
    return ids


def instance(number: int) -> dict[str, Any]:
    return {
        "id": f"i-{number:017x}",
        "region": "us-east-1",
        "state": "running",
        "instance_type": "m8i.2xlarge",
        "image_id": "ami-0123456789abcdef0",
        "public_ip": f"198.51.{number // 250}.{number % 250 + 1}",
    }


async def report_load(plane: LonePlane, ids: list[str], in_view: str) -> None:
    """Report each worker once in the interval of its controller, spread over it; one of them every time."""
    clock, number = SystemClock(), 0
    share = max(1, round(len(ids) / MonitoringConfig().report_interval / ROUNDS_PER_SECOND))
    while True:
        now = clock.now()
        chosen = [in_view, *(ids[(number + step) % len(ids)] for step in range(share))]
        number += share
        samples = [
            {
                "worker_id": worker_id,
                "collected_at": (now + timedelta(milliseconds=place)).isoformat(),
                "source": "websocket",
                "cpu_utilization": (number + place) % 100,
                "memory_utilization": 50,
                "disk_utilization": 30,
            }
            for place, worker_id in enumerate(chosen)
        ]
        await plane.accepted("/metrics", {"samples": samples})
        await clock.sleep(1 / ROUNDS_PER_SECOND)


async def heap_after_collection(session: CDPSession) -> float:
    await session.send("HeapProfiler.collectGarbage")
    return (await metrics(session))["JSHeapUsedSize"]


async def metrics(session: CDPSession) -> dict[str, float]:
    found = (await session.send("Performance.getMetrics"))["metrics"]
    return {each["name"]: each["value"] for each in found}


async def open_fleet(page: Page, plane: LonePlane) -> str:
    """Return the id of the first worker in view."""
    await page.add_init_script(WATCH)
    await page.goto(f"{plane.url}/?token={plane.token}")
    name = await page.locator("[data-worker-name]").first.get_attribute("data-worker-name")
    worker_id: str = (await plane.admin.get(f"/api/workers/{name}"))["id"]
    return worker_id


async def measure(page: Page, minutes: float) -> dict[str, float]:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    loaded, interactive = await page.evaluate(LOADED), await page.evaluate("measured.interactive")
    clock = SystemClock()
    await clock.sleep(min(180.0, minutes * 60 / 4))  # the page settles
    early = await heap_after_collection(session)
    await page.evaluate("Object.assign(measured, { longest: 0, delays: [] })")
    before, began = await metrics(session), clock.monotonic()
    await clock.sleep(minutes * 60 * 3 / 4)
    seconds, after = clock.monotonic() - began, await metrics(session)
    seen = await page.evaluate("measured")
    return {
        "first_load_bytes": loaded,
        "interactive_ms": interactive,
        "events": len(seen["delays"]),
        "frames_until_shown": max((frames for frames, _ in seen["delays"]), default=0),
        "shown_ms_p99": percentile([delay for _, delay in seen["delays"]] or [0.0], 99),
        "longest_frame_ms": seen["longest"],
        "scripting_share": (after["ScriptDuration"] - before["ScriptDuration"]) / seconds,
        "main_thread_share": (after["TaskDuration"] - before["TaskDuration"]) / seconds,
        "heap_early_bytes": early,
        "heap_late_bytes": await heap_after_collection(session),
    }


async def main(workers: int, minutes: float) -> None:
    assert CHROMIUM is not None, "no Chromium; 'make browser' installs one where that is possible"
    with tempfile.TemporaryDirectory() as folder:
        async with lone_plane(Path(folder)) as plane, async_playwright() as playwright:
            ids = await import_workers(plane, workers)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            async with asyncio.TaskGroup() as tasks:
                page = await browser.new_page()
                in_view = await open_fleet(page, plane)
                reporting = tasks.create_task(report_load(plane, ids, in_view))
                figures = await measure(page, minutes)
                reporting.cancel()
            await browser.close()
    rows = [(name, f"{value:,.3g}") for name, value in figures.items()]
    growth = {"heap, late to early": figures["heap_late_bytes"] / figures["heap_early_bytes"]}
    report(f"dashboard, {workers:,} workers, {minutes:g} min", rows, growth, figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=1.0)
    options, _ = parser.parse_known_args()
    asyncio.run(main(options.workers, options.minutes))
