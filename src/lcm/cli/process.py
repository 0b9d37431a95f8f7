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
"""Containers allocated beyond those freed. Python's default of 700 is reached by one burst of reports."""


def leave_quietly_on_signals() -> None:
    """Let Ctrl-C or SIGTERM exit cleanly, closing what is open, until an event loop runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


def run_until_signalled(work: Coroutine[Any, Any, None], *, until_stdin_closes: bool = False) -> None:
    """Run to the end, or until a signal to stop, which is not an error."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(work, until_stdin_closes))


def collect_rarely() -> None:
    """Run the cyclic garbage collector less often.

    Buffered reports are no garbage: scanning them, and all monitors with them, took a tenth of a
    controller's CPU time with thousands of workers, and scanning loaded code a sixth of a start.
    """
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, 20, 20)


def spare_loaded_code() -> None:
    """Let no later collection scan what a started process keeps for good.

    A full collection stopped every request of a control plane for 90 ms, nearly all of it for loaded code.
    """
    gc.freeze()


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
