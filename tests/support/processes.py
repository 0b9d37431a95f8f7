"""LCM and its simulator as a user runs them: real processes, gone when the block is left."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from lcm.cli.up import Ready
from lcm.core.redaction import MASK
from lcm.core.timeouts import timeout
from lcm.simulator.main import SimulationInfo, simulated_password
from support.canaries import suite_canaries
from support.patience import PATIENCE_SECONDS
from support.ports import session_ports
from support.quick_start import Process, start_lcm

SPEED = 20
"""How much faster than in its demo the simulation runs in tests."""


async def eventually(check: Callable[[], Awaitable[Any]], *, within_seconds: float = PATIENCE_SECONDS) -> Any:
    """Ask again and again until the answer is true-ish, and return it; fails after the deadline."""
    async with timeout(within_seconds):
        while not (answer := await check()):  # noqa: ASYNC110 - another process decides when
            await asyncio.sleep(0.01)  # noqa: TID251 - in real time
    return answer


@dataclass(frozen=True)
class Running:
    """A process that is ready, and its standard error so far."""

    process: Process
    errors: IO[str]

    def stderr(self) -> str:
        self.errors.seek(0)
        return self.errors.read()


@dataclass(frozen=True)
class RunningSimulator(Running):
    """`lcm simulate`."""

    info: SimulationInfo


@dataclass(frozen=True)
class RunningLcm(Running):
    """`lcm up`."""

    ready: Ready

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ready.ports['control_plane']}"

    @property
    def worker_controller_url(self) -> str:
        return f"http://127.0.0.1:{self.ready.ports['worker_controller']}"


@dataclass(frozen=True)
class Ended:
    """A command that has ended by itself."""

    code: int
    stdout: str
    stderr: str


def lcm_to_its_end(*arguments: str, **environment: str) -> Ended:
    """`lcm …`, as a person at a terminal runs it."""
    with tempfile.TemporaryFile("w+") as errors:
        process = start_lcm(arguments, errors, environment)
        assert process.stdout is not None
        with process.stdout as stdout:
            output = stdout.read()
        code = process.wait(timeout=PATIENCE_SECONDS)
        errors.seek(0)
        return Ended(code, output, errors.read())


@contextmanager
def running_simulator(*options: str) -> Iterator[RunningSimulator]:
    with running_command("simulate", "--speed", str(SPEED), *options) as (line, process, errors):
        yield RunningSimulator(process, errors, msgspec.json.decode(line, type=SimulationInfo))


@contextmanager
def running_lcm(*options: str, **environment: str) -> Iterator[RunningLcm]:
    environment = {"WORKER_WAIT_SECONDS": "0.05", **session_ports(), **environment}
    arguments = ("up", "--port", "0", "--speed", str(SPEED), "--no-demo-sessions", *options)
    suite_canaries.know("password of the simulated CML", simulated_password(seed=0))
    with running_command(*arguments, **environment) as (line, process, errors):
        running = RunningLcm(process, errors, msgspec.json.decode(line, type=Ready))
        yield running
        assert MASK not in running.stderr(), "something tried to log a secret"


@contextmanager
def running_command(*arguments: str, **environment: str) -> Iterator[tuple[str, Process, IO[str]]]:
    with tempfile.TemporaryFile("w+") as errors:
        process = start_lcm((*arguments, "--json"), errors, environment)
        assert process.stdout is not None
        data_dir: Path | None = None
        try:
            line = process.stdout.readline()
            assert line, f"lcm {' '.join(arguments)} ended with {process.wait()} before it was ready"
            data_dir = _know_secrets_of(line, environment)
            yield line, process, errors
        finally:
            if data_dir is not None:
                suite_canaries.search_data_dir(data_dir)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE_SECONDS)
            if data_dir is not None:
                suite_canaries.search_data_dir(data_dir)
            suite_canaries.search("standard output", _left_in(process.stdout))
            process.stdout.close()
            errors.seek(0)
            said = errors.read()
            suite_canaries.search("the log", said)
            print(said, file=sys.stderr)


def _left_in(stdout: IO[str]) -> bytes:
    """Without waiting for children that were not ended with their parent."""
    os.set_blocking(stdout.fileno(), False)
    try:
        return os.read(stdout.fileno(), 1_000_000)
    except BlockingIOError:
        return b""


def _know_secrets_of(ready_line: str, environment: Mapping[str, str]) -> Path | None:
    """The data directory that a process names on its ready line, if it has one."""
    ready = json.loads(ready_line)
    suite_canaries.know_environment(environment)
    for secret in ("token", "cml_password"):
        suite_canaries.know(secret, ready.get(secret))
    if "data_dir" not in ready:
        return None
    data_dir = Path(ready["data_dir"])
    suite_canaries.know_data_dir(data_dir)
    return data_dir
