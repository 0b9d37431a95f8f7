"""The simulator as a child process. Imports almost nothing: it is started before the slow imports."""

import subprocess
import sys
from types import TracebackType
from typing import Self

END_SECONDS = 4.0


class SimulatorChild:
    """`lcm simulate`, running as long as the block; it ends by itself if its parent is killed."""

    def __init__(self, *, seed: int, speed: float) -> None:
        command = ["simulate", "--json", "--until-stdin-closes", "--seed", str(seed), "--speed", str(speed)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lcm", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C reaches the whole group; the simulator must outlive the processes that still call it.
            start_new_session=True,
        )

    def read_ready_line(self) -> bytes:
        """Block until the simulator is ready; empty if it ended instead."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Close its standard input, which makes it exit, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
