"""From a person's click (stop, start) to the call arriving at EC2, through everything in between.

The way: HTTP request, durable commit, coordination store, watch, reconcile, durable commit of the
intent, EC2's wire protocol. Compared with the debounce window that a trailing debounce would add,
and with a bare request to the same server.
"""

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from report import percentile, report
from support.api import Api, Console, admin_of, console_of
from support.processes import running_lcm

ROUNDS = 100
WINDOW_SECONDS = 0.5


async def one_click(api: Api, console: Console, worker: dict[str, str], action: str, operation: str) -> float:
    """Seconds from just before the request to EC2's own record of the call."""
    earlier = len(await console.calls(operation))
    clicked_at = time.time()
    await api.act(worker, action)
    while len(calls := await console.calls(operation)) == earlier:
        await asyncio.sleep(0.1)  # EC2 has noted when it came: asking often would only slow it
    return float(calls[-1]["at"]) - clicked_at


async def bare_request(api: Api) -> float:
    started = time.perf_counter()
    await api.get("/api/session")
    return time.perf_counter() - started


async def measure() -> None:
    clicks: list[float] = []
    bare: list[float] = []
    with running_lcm("--workers", "0") as lcm:
        async with admin_of(lcm) as api, console_of(str(lcm.ready.aws_endpoint)) as console:
            worker = await api.until(await api.create("clicked"), "running", cml_ready=True)
            for _ in range(ROUNDS // 2):
                for action, operation, goal in (
                    ("stop", "StopInstances", "stopped"),
                    ("start", "StartInstances", "running"),
                ):
                    await asyncio.sleep(WINDOW_SECONDS)  # the key must be quiet
                    clicks.append(await one_click(api, console, worker, action, operation))
                    await api.until(worker, goal)
                    bare.append(await bare_request(api))
    p50, p99 = percentile(clicks, 50), percentile(clicks, 99)
    bare_p50 = percentile(bare, 50)
    report(
        "click_to_ec2",
        [
            ("clicks", str(len(clicks))),
            ("click to EC2, p50", f"{p50 * 1000:.1f} ms"),
            ("click to EC2, p99", f"{p99 * 1000:.1f} ms"),
            ("a bare request, p50", f"{bare_p50 * 1000:.1f} ms"),
        ],
        ratios={
            "p99 / debounce window of 0.5 s (goal: well under 1)": p99 / WINDOW_SECONDS,
            "p50 / a bare request to the same server (goal: at most 12)": p50 / bare_p50,
            "p99 / p50 (goal: at most 2)": p99 / p50,
        },
        figures={"p50_seconds": p50, "p99_seconds": p99, "bare_request_p50_seconds": bare_p50},
    )


if __name__ == "__main__":
    asyncio.run(measure())
