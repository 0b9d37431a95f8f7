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
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
    "lcm.lablet_controller.main",
    "lcm.resource_scheduler.main",
    "lcm.rest.documents",
    "lcm.rest.peer_feed",
    "lcm.simulator.main",
    "lcm.simulator.aws.server",
)
STAND_IN: Final = Path(__file__).with_name("quick_python.py")


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
            request = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
            socket.send_fds(self._channel, [request], [writing, errors.fileno()])
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


class Hatchery:
    """Forks whatever it is asked for: by the tests, and by processes it has forked itself."""

    def __init__(self, channel: socket.socket, directory: Path) -> None:
        self._channel = channel
        self._stand_in = directory / "python"
        """Where processes that were forked believe their interpreter is."""
        self._stand_in.write_text(f"#!{sys.executable} -IS\n{STAND_IN.read_text()}")
        self._stand_in.chmod(0o700)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind("\0" + directory.name)  # a name, not a file: paths of sockets must be short
        self._door.listen()
        self._stood_for: dict[socket.socket, int] = {}
        """By the stand-in that waits for it."""
        self._forgotten: set[int] = set()

    def serve(self) -> None:
        """Until the tests are over."""
        while True:
            ready, _, _ = select.select([self._channel, self._door, *self._stood_for], [], [])
            if self._channel in ready and not self._serve_tests():
                return
            if self._door in ready:
                self._serve_stand_in()
            for stand_in in self._stood_for.keys() & set(ready):
                self._report_end(stand_in)
            self._forgotten -= {pid for pid in self._forgotten if os.waitpid(pid, os.WNOHANG)[0]}

    def _serve_tests(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, 2)
        if not message:
            return False
        request = json.loads(message)
        if "ended" in request:
            self._channel.send(_exit_code_of(request["ended"]))
        else:
            nowhere = os.open(os.devnull, os.O_RDONLY)
            command = ["-m", "lcm", *request["arguments"]]
            pid = self._fork(command, request["environment"], Path.cwd(), [nowhere, *descriptors])
            self._channel.send(str(pid).encode())
        return True

    def _serve_stand_in(self) -> None:
        stand_in, _ = self._door.accept()
        message, descriptors, _, _ = socket.recv_fds(stand_in, MESSAGE_BYTES, 3)
        if not message:
            stand_in.close()
            return
        request = json.loads(message)
        pid = self._fork(
            request["arguments"],
            request["environment"],
            Path(request["directory"]),
            descriptors,
            own_session=True,
        )
        self._stood_for[stand_in] = pid
        with suppress(BrokenPipeError):  # it was killed, which its descriptor shows too
            stand_in.send(str(pid).encode())

    def _report_end(self, stand_in: socket.socket) -> None:
        """To one that asks; one that was killed does not ask."""
        pid = self._stood_for.pop(stand_in)
        with stand_in:
            asks = b""
            with suppress(ConnectionResetError):
                asks = stand_in.recv(100)
            if not asks:
                self._forgotten.add(pid)
                return
            code = _exit_code_of(pid)
            with suppress(BrokenPipeError):
                stand_in.send(code)

    def _fork(
        self,
        command: list[str],
        environment: dict[str, str],
        directory: Path,
        streams: list[int],
        *,
        own_session: bool = False,
    ) -> int:
        pid = os.fork()
        if pid == 0:
            for held in (self._channel, self._door, *self._stood_for):
                held.close()
            if own_session:
                os.setsid()
            os.chdir(directory)
            sys.executable = str(self._stand_in)
            os._exit(_become(command, environment, streams))
        for stream in streams:
            os.close(stream)
        return pid


def _exit_code_of(pid: int) -> bytes:
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode()


def _become(command: list[str], environment: dict[str, str], streams: list[int]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # to be found out anew
    _, module, *arguments = command
    sys.argv = [module, *arguments]
    try:
        _main_of(module)()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _main_of(module: str) -> Callable[[], None]:
    if module == "lcm":
        from lcm.cli.app import main

        return main
    from moto.moto_api._internal import mock_random

    from lcm.simulator.aws_server import main as aws_main

    mock_random.seed()  # or every one of them would give its instances the same names
    return aws_main


def serve(channel: socket.socket) -> None:
    from lcm.simulator.aws_server import MOTO_SETTINGS

    os.environ.update(MOTO_SETTINGS)
    for module in LOADED:
        __import__(module)
    gc.freeze()
    # Where programs may be: temporary directories are sometimes not for them.
    with tempfile.TemporaryDirectory(prefix="lcm-quick-", dir=sys.prefix) as directory:
        Hatchery(channel, Path(directory)).serve()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
