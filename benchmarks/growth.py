"""How CPU and memory grow with the fleet: control plane and worker controller at several numbers of workers.

Each size is a run of `live_latency.py`: every worker with a live feed over TLS, browsers that watch them all,
and nodes that are started meanwhile. A line through the sizes gives what one more worker costs. Where it ends
before 10,000 workers, the value there is extrapolated, not measured.
"""

import argparse
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression

import uvloop

from live_latency import Measured, run
from report import percentile, report

FLEET = 10_000
"""The goal is stated for so many workers."""

Value = Callable[[Measured], float]

PROCESSES: Mapping[str, tuple[Value, Value]] = {
    "controller": (lambda at: at.controller.core, lambda at: at.controller.megabytes),
    "control plane": (lambda at: at.control_plane.core, lambda at: at.control_plane.megabytes),
}
"""The share of a core and the memory of each process under test."""


def measure(arguments: argparse.Namespace) -> dict[int, Measured]:
    measured = {}
    for workers in sorted(set(arguments.sizes)):
        options = argparse.Namespace(**{**vars(arguments), "workers": workers})
        with tempfile.TemporaryDirectory() as directory:
            measured[workers] = uvloop.run(run(options, Path(directory)))
    return measured


def line_of(measured: Mapping[int, Measured], value: Value) -> tuple[float, float]:
    """Return what a worker costs, and what is there without any."""
    line = linear_regression([float(workers) for workers in measured], [*map(value, measured.values())])
    return line.slope, line.intercept


def rows_of(workers: int, at: Measured) -> Sequence[tuple[str, str]]:
    p99, bare = percentile(at.latencies, 99) * 1000, percentile(at.bare, 99) * 1000
    return [
        (f"{workers:,} workers: controller", str(at.controller)),
        (f"{workers:,} workers: control plane", str(at.control_plane)),
        (f"{workers:,} workers: change at a browser, p99", f"{p99:.0f} ms, a bare request {bare:.0f} ms"),
        (f"{workers:,} workers: lost", str(at.lost)),
    ]


def show(measured: Mapping[int, Measured]) -> None:
    rows = [row for workers, at in measured.items() for row in rows_of(workers, at)]
    figures: dict[str, float] = {}
    at_fleet = 0.0
    for process, (core, megabytes) in PROCESSES.items():
        of_core, core_at_none = line_of(measured, core)
        of_memory, _ = line_of(measured, megabytes)
        at_fleet += core_at_none + of_core * FLEET
        rows.append((f"one more worker: {process}", f"{of_core:.4%} of a core, {of_memory * 1e3:.0f} KB"))
        key = process.replace(" ", "_")
        figures |= {f"{key}_core_per_worker": of_core, f"{key}_kb_per_worker": of_memory * 1e3}
        for workers, at in measured.items():
            figures |= {f"{key}_core_{workers}": core(at), f"{key}_mb_{workers}": megabytes(at)}
    for workers, at in measured.items():
        figures |= {f"p99_seconds_{workers}": percentile(at.latencies, 99), f"lost_{workers}": at.lost}
    slowest = figures[f"p99_seconds_{max(measured)}"]
    report(
        "growth",
        rows,
        ratios={
            f"both at {FLEET:,} workers by these lines / a core (goal: at most 1)": at_fleet,
            "p99 at the largest size / 200 ms (goal: at most 1)": slowest / 0.2,
            "lost (goal: 0)": sum(at.lost for at in measured.values()),
        },
        figures=figures,
    )


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1_000, 2_000], help="two or more")
    parser.add_argument("--browsers", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=300, help="to start at each size, one after the other")
    parser.add_argument("--seconds", type=float, default=20.0, help="in which they are started")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    if len(set(arguments.sizes)) < 2:
        parser.error("a line needs two sizes")
    show(measure(arguments))


if __name__ == "__main__":
    main()
