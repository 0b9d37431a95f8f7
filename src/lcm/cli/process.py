"""What every long-running command shares: an event loop, and an orderly end on Ctrl-C or SIGTERM."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

ALLOCATIONS_PER_COLLECTION = 20_000
"""Of containers, beyond those freed again. Python's 700 come within one burst of reports."""


def leave_quietly_on_signals() -> None:
    """Until an event loop runs, Ctrl-C or SIGTERM just ends the program, with everything it opened."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


def run_until_signalled(work: Coroutine[Any, Any, None], *, until_stdin_closes: bool = False) -> None:
    """Run to the end, or until told to stop; being told is not an error."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(work, until_stdin_closes))


def collect_rarely() -> None:
    """Reports that wait for their second are no garbage: to look for cycles in them, and through all the
    monitors because of them, was a tenth of what a fleet of thousands cost its controller. Nor is the code
    that a start loads: a sixth of its time."""
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, 20, 20)


async def _until_signalled(work: Coroutine[Any, Any, None], until_stdin_closes: bool) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    if until_stdin_closes:
        _watch_stdin(loop, told_to_stop)
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work)
        waiting = tasks.create_task(told_to_stop.wait())
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        waiting.cancel()


def _watch_stdin(loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
    """A parent that dies closes our standard input, however it died."""
    descriptor = sys.stdin.fileno()

    def on_readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            closed.set()

    loop.add_reader(descriptor, on_readable)
