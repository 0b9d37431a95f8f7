"""Processes of LCM that start in a fraction of a second: forked by an interpreter that has loaded everything.

Each is what `lcm …` runs, with its own pid to kill; only the loading of modules is shared.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.canaries import suite_canaries
from support.patience import PATIENCE_SECONDS
from support.quick_start import PR_SET_PDEATHSIG


class Forkery:
    """Starts commands, one line of JSON each way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.data_dirs: set[Path] = set()

    def start(self, *arguments: str) -> Any:
        """Start a command and return its ready line, which holds its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"lcm {' '.join(arguments)} did not start"
        if "--data-dir" in arguments:
            self.data_dirs.add(Path(arguments[arguments.index("--data-dir") + 1]))
        return json.loads(line)


def kill(pid: int) -> None:
    """Kill a process with SIGKILL, and wait until it is gone."""
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


@contextmanager
def forkery() -> Iterator[Forkery]:
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "support.forked"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            started = Forkery(process)
            yield started
            for data_dir in started.data_dirs:
                suite_canaries.search_data_dir(data_dir)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=PATIENCE_SECONDS)
            errors.seek(0)
            said = errors.read()
            suite_canaries.search("the log of forked processes", said)
            print(said[-20_000:], file=sys.stderr)


def serve() -> None:
    """Fork a command per line until there are no more."""
    import lcm.cli.processes  # noqa: F401 - what takes long to load
    from lcm.cli.app import main

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children are not waited for
    for line in sys.stdin:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # whatever becomes of the test
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            sys.argv = ["lcm", *json.loads(line)]
            main()


if __name__ == "__main__":
    serve()
