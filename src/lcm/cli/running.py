"""Running until a signal: the event loop of every long-running command, and its orderly end."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop


def run_until_signalled(work: Coroutine[Any, Any, None], *, until_stdin_closes: bool = False) -> None:
    """Run to the end, or until a signal to stop, which is not an error."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(work, until_stdin_closes))


async def _until_signalled(work: Coroutine[Any, Any, None], until_stdin_closes: bool) -> None:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_requested.set)
    if until_stdin_closes:
        _watch_stdin(loop, stop_requested)
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work)
        waiting = tasks.create_task(stop_requested.wait())
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        waiting.cancel()


def _watch_stdin(loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
    """Stop when standard input closes: a dying parent closes it, however it died."""
    descriptor = sys.stdin.fileno()

    def on_readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            closed.set()

    loop.add_reader(descriptor, on_readable)
