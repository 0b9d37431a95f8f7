"""What the dashboard costs a browser: first load, events until they are on the screen, scripting and memory.

A control plane with many imported workers, whose load is reported at the real rate, in front of a Chromium.
The page measures itself: an event counts from its arrival in the page until the animation frame that paints
the next change of the document; each batch of load has one worker that is in view. `--minutes 30` shows
whether memory grows; `--speed 10` reports ten times as often, so that three minutes show it too. `--profile`
says which functions the scripting is spent in.

Scripting and the main thread are CPU time of the browser's main thread, which other processes do not change.
So is the longest task, in the first seconds too: no frame waits longer for the page itself. Frames, the time
until a page is interactive and that until an event is shown are wall time: they mean something on an idle
host only.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.async_api import CDPSession, Page, async_playwright

from e2e.conftest import CHROMIUM, FLAGS
from lcm.core.clock import SystemClock
from lcm.core.telemetry import configure_logging
from lcm.worker_controller.monitoring.config import MonitoringConfig
from report import percentile, report
from support.lone_plane import LonePlane, lone_plane

ROUNDS_PER_SECOND = 5
IMPORTED_AT_ONCE = 25
THIRD_MINUTE = 180.0
"""Until then a page settles."""
PROFILED = 15
TRACED_SECONDS = 30.0
TRACED = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]

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


async def report_load(plane: LonePlane, ids: list[str], in_view: str, speed: float) -> None:
    """Report each worker once in the interval of its controller, spread over it; one of them every time."""
    clock, number = SystemClock(), 0
    share = max(1, round(len(ids) / MonitoringConfig().report_interval / ROUNDS_PER_SECOND * speed))
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


def hottest(profile: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the functions that took most of a CPU profile themselves, with their milliseconds."""
    names = {
        node["id"]: "{functionName} {url}:{lineNumber}:{columnNumber}".format_map(node["callFrame"])
        for node in profile["nodes"]
    }
    spent: Counter[str] = Counter()
    for node, microseconds in zip(profile["samples"], profile["timeDeltas"], strict=True):
        spent[names[node]] += microseconds
    return [(name, f"{micro / 1000:,.0f} ms") for name, micro in spent.most_common(PROFILED)]


def longest_task(trace: dict[str, Any]) -> float:
    """Return the milliseconds of CPU of the longest task of the page's main thread."""
    events = trace["traceEvents"]
    threads = [
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    ]
    tasks = [
        each.get("tdur", 0)
        for each in events
        if each["name"].endswith("RunTask") and (each["pid"], each["tid"]) in threads
    ]
    return max(tasks, default=0) / 1000


async def measure(
    page: Page, session: CDPSession, minutes: float, stop_tracing: Callable[[], Awaitable[bytes]]
) -> dict[str, float]:
    starting = await metrics(session)
    loaded, interactive = await page.evaluate(LOADED), await page.evaluate("measured.interactive")
    clock = SystemClock()
    settling = min(THIRD_MINUTE, minutes * 60 / 4)
    traced = min(TRACED_SECONDS, settling)
    await clock.sleep(traced)
    trace = json.loads(await stop_tracing())
    await clock.sleep(settling - traced)
    early = await heap_after_collection(session)
    await page.evaluate("Object.assign(measured, { longest: 0, delays: [] })")
    before, began = await metrics(session), clock.monotonic()
    await clock.sleep(minutes * 60 - settling)
    seconds, after = clock.monotonic() - began, await metrics(session)
    seen = await page.evaluate("measured")
    return {
        "first_load_bytes": loaded,
        "interactive_ms": interactive,
        "interactive_cpu_ms": starting["TaskDuration"] * 1000,
        "events": len(seen["delays"]),
        "frames_until_shown": max((frames for frames, _ in seen["delays"]), default=0),
        "frames_until_shown_p50": percentile([frames for frames, _ in seen["delays"]] or [0], 50),
        "shown_ms_p99": percentile([delay for _, delay in seen["delays"]] or [0.0], 99),
        "longest_frame_ms": seen["longest"],
        "longest_task_cpu_ms": longest_task(trace),
        "scripting_share": (after["ScriptDuration"] - before["ScriptDuration"]) / seconds,
        "main_thread_share": (after["TaskDuration"] - before["TaskDuration"]) / seconds,
        "heap_early_bytes": early,
        "heap_late_bytes": await heap_after_collection(session),
    }


async def main(workers: int, minutes: float, speed: float, *, profiles: bool) -> None:
    configure_logging("human", "ERROR")
    assert CHROMIUM is not None, "no Chromium; 'make browser' installs one where that is possible"
    with tempfile.TemporaryDirectory() as folder:
        async with lone_plane(Path(folder)) as plane, async_playwright() as playwright:
            ids = await import_workers(plane, workers)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            async with asyncio.TaskGroup() as tasks:
                page = await browser.new_page()
                session = await page.context.new_cdp_session(page)
                await session.send("Performance.enable", {"timeDomain": "threadTicks"})
                await browser.start_tracing(page=page, categories=TRACED)
                in_view = await open_fleet(page, plane)
                reporting = tasks.create_task(report_load(plane, ids, in_view, speed))
                if profiles:
                    await session.send("Profiler.enable")
                    await session.send("Profiler.start")
                figures = await measure(page, session, minutes, browser.stop_tracing)
                profile = (await session.send("Profiler.stop"))["profile"] if profiles else None
                reporting.cancel()
            await browser.close()
    rows = [(name, f"{value:,.3g}") for name, value in figures.items()]
    if profile is not None:
        rows += hottest(profile)
    growth = figures["heap_late_bytes"] / figures["heap_early_bytes"]
    to_goals = {
        "first load to 150 kB": figures["first_load_bytes"] / 150_000,
        "interactive to 1 s": figures["interactive_ms"] / 1_000,
        "frames until an event is shown to 2, p50": figures["frames_until_shown_p50"] / 2,
        "scripting to 20 % of a core": figures["scripting_share"] / 0.2,
        "longest task, its CPU, to 100 ms": figures["longest_task_cpu_ms"] / 100,
        "longest frame to 100 ms": figures["longest_frame_ms"] / 100,
        "heap, late to early": growth,
    }
    title = f"dashboard, {workers:,} workers, {minutes:g} min"
    report(title if speed == 1 else f"{title}, {speed:g} x the rate", rows, to_goals, figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--speed", type=float, default=1.0, help="times the real rate of reports")
    parser.add_argument("--profile", action="store_true", help="name the functions that take most of the CPU")
    options, _ = parser.parse_known_args()
    asyncio.run(main(options.workers, options.minutes, options.speed, profiles=options.profile))
