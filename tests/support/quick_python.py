"""Stands in for the interpreter where a process that `quick_start` forked starts the simulator or its AWS.

Has the forker make that process, with the standard streams it was given, and is what its parent waits for.
Its name says which process it stands for. Anything else is started as usual.
"""

import ctypes
import json
import os
import select
import socket
import sys
from pathlib import Path

PR_SET_NAME = 15
QUICK = (["-m", "lcm", "simulate"], ["-m", "lcm.simulator.aws_server"])


def main() -> None:
    arguments = sys.argv[1:]
    if not any(arguments[: len(quick)] == quick for quick in QUICK):
        os.execv(sys.executable, [sys.executable, *arguments])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect("\0" + Path(sys.argv[0]).parent.name)
        request = {"arguments": arguments, "environment": dict(os.environ), "directory": str(Path.cwd())}
        socket.send_fds(channel, [json.dumps(request).encode()], [0, 1, 2])
        pid = int(channel.recv(100))
        ctypes.CDLL(None).prctl(PR_SET_NAME, f"for {pid}".encode())
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        select.select([os.pidfd_open(pid)], [], [])
        channel.send(b"how did it end?")
        code = int(channel.recv(100))
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
