"""What every command does to its process first, and a server when it has started; loads next to nothing."""

import gc
import signal
import sys

ALLOCATIONS_PER_COLLECTION = 20_000
"""Containers allocated beyond those freed. Python's default of 700 is reached by one burst of reports."""


def leave_quietly_on_signals() -> None:
    """Let Ctrl-C or SIGTERM exit cleanly, closing what is open, until an event loop runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


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
