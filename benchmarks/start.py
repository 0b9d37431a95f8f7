"""How long a person waits for `lcm up`: from the command to the line that says that everything answers.

Warm: the bytecode is there, as after `make setup` or an installation by pip. Without bytecode: every process
compiles what it loads. With `--set-up` also a fresh clone: `make run` installs, builds the dashboard and
starts. The floor is the same code loaded by processes side by side, and nothing else. CPU is that of all
processes together until the line; two cores cannot be quicker than half of it.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from report import report

ROOT = Path(__file__).parents[1]
UP = (sys.executable, "-m", "lcm", "up", "--port", "0", "--json")
LOADED = ("lcm.cli.up", "lcm.simulator.main", "lcm.simulator.aws.server")
"""What each of the three processes loads."""
ROUNDS = 5
GOAL_SECONDS, SET_UP_GOAL_SECONDS = 3.0, 15.0


def cpu_below(pid: int) -> float:
    """CPU seconds of a process and of all that it started."""
    directory = Path(f"/proc/{pid}")
    fields = (directory / "stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = [task.read_text().split() for task in directory.glob("task/*/children")]
    return used + sum(cpu_below(int(child)) for found in children for child in found)


def started(
    command: Sequence[str], environment: Mapping[str, str], directory: Path = ROOT
) -> tuple[float, float]:
    """Seconds and CPU seconds until the command prints its ready line; it is ended then."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as lines:
        ready = any(line.startswith(b"{") for line in lines)
        took, cpu = time.perf_counter() - began, cpu_below(process.pid)
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    assert ready, f"{' '.join(command)} ended before it was ready"
    return took, cpu


def loaded(environment: Mapping[str, str]) -> float:
    """Seconds until processes side by side have loaded the code."""
    began = time.perf_counter()
    processes = [
        subprocess.Popen([sys.executable, "-c", f"import {module}"], cwd=ROOT, env=environment)
        for module in LOADED
    ]
    for process in processes:
        process.wait()
    return time.perf_counter() - began


@contextlib.contextmanager
def bytecode_in(directory: Path) -> Iterator[dict[str, str]]:
    """An environment whose processes keep their bytecode there."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    yield environment | {"PYTHONPYCACHEPREFIX": str(directory)}


def from_a_fresh_clone(directory: Path) -> float:
    """Seconds of `make run`, after a clone of the last commit."""
    clone = directory / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    return started(["make", "run", "ARGS=--port 0 --json"], os.environ, clone)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set-up", action="store_true", help="also `make run` in a fresh clone")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, bytecode_in(Path(directory)) as environment:
        cold_seconds, cold_cpu = started(UP, environment)
        runs = [started(UP, environment) for _ in range(ROUNDS)]
        floor = statistics.median(loaded(environment) for _ in range(ROUNDS))
        set_up = from_a_fresh_clone(Path(directory)) if arguments.set_up else None
    warm, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
    rows = [
        ("the code loaded side by side, median", f"{floor:.1f} s"),
        ("ready, warm, median", f"{warm:.1f} s, {cpu:.1f} s of CPU"),
        ("ready, without bytecode", f"{cold_seconds:.1f} s, {cold_cpu:.1f} s of CPU"),
    ]
    ratios = {
        "warm / the code loaded side by side": warm / floor,
        "warm / 3 s (goal: at most 1)": warm / GOAL_SECONDS,
    }
    figures = {
        "loaded_seconds": floor,
        "warm_seconds": warm,
        "warm_cpu_seconds": cpu,
        "cold_seconds": cold_seconds,
        "cold_cpu_seconds": cold_cpu,
    }
    if set_up is not None:
        rows.append(("ready, `make run` in a fresh clone", f"{set_up:.1f} s"))
        ratios["fresh clone / 15 s (goal: at most 1)"] = set_up / SET_UP_GOAL_SECONDS
        figures["set_up_seconds"] = set_up
    report("start", rows, ratios, figures)


if __name__ == "__main__":
    main()
