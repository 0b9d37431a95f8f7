"""Starts `lcm …` in a fraction of the time: a process that has loaded all of it forks.

Loading the code is nearly all that a start costs, and tests that kill start the same command over and over.
What comes out is a process like any other, with its own environment, signals and end. Where the system cannot
do this, the command is started in the usual way.
"""

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Final, Protocol

if sys.path[0] == str(Path(__file__).parent):
    del sys.path[0]  # run as a script: its neighbours are not top-level modules

CAN_FORK: Final = sys.platform == "linux"
PR_SET_PDEATHSIG: Final = 1
MESSAGE_BYTES: Final = 256 * 1024
LOADED: Final = (
    "lcm.cli.app",
    "lcm.cli.up",
    "lcm.cli.processes",
    "lcm.control_plane.main",
    "lcm.control_plane.store.mongodb",
    "lcm.core.kv.etcd",
    "lcm.worker_controller.main",
    "lcm.worker_controller.adapters.ec2",
    "lcm.rest.documents",
    "lcm.rest.peer_feed",
    "lcm.simulator.main",
)


class Process(Protocol):
    """As much of `subprocess.Popen` as tests use."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start_lcm(arguments: Sequence[str], errors: IO[str], environment: Mapping[str, str]) -> Process:
    """`lcm …`, with standard output to be read and standard error in this file."""
    if CAN_FORK:
        return _forker().start(arguments, errors, {**os.environ, **environment})
    return subprocess.Popen(
        [sys.executable, "-m", "lcm", *arguments],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, **environment},
    )


class ForkedProcess:
    """A grandchild: watched by its descriptor, and asked after at its parent, the forker."""

    def __init__(self, forker: "Forker", pid: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout: IO[str] | None = stdout
        self._forker = forker
        self._descriptor = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code if self._code is not None else self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._code if self._code is not None else self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"lcm, pid {self.pid}", timeout or 0)
        return code

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            os.close(self._descriptor)
            self._code = self._forker.exit_code_of(self.pid)
        return self._code


class Forker:
    """The process that has everything loaded. It ends when the channel to it is closed."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def start(
        self, arguments: Sequence[str], errors: IO[str], environment: Mapping[str, str]
    ) -> ForkedProcess:
        reading, writing = os.pipe()
        try:
            wish = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
            socket.send_fds(self._channel, [wish], [writing, errors.fileno()])
        finally:
            os.close(writing)
        return ForkedProcess(self, int(self._channel.recv(MESSAGE_BYTES)), os.fdopen(reading))

    def exit_code_of(self, pid: int) -> int:
        """Of a process that has ended."""
        self._channel.send(json.dumps({"ended": pid}).encode())
        return int(self._channel.recv(MESSAGE_BYTES))

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _forker() -> Forker:
    return Forker()


# The other side.


def serve(channel: socket.socket) -> None:
    for module in LOADED:
        __import__(module)
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
        if not message:
            return
        wish = json.loads(message)
        if "ended" in wish:
            _, status = os.waitpid(wish["ended"], 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            channel.close()
            os._exit(_become(wish["arguments"], wish["environment"], *descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(pid).encode())


def _become(arguments: list[str], environment: dict[str, str], output: int, errors: int) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["lcm", *arguments]
    from lcm.cli.app import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
