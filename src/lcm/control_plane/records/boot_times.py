"""How long workers of each template took from their launch until their CML answered, in memory.

A control plane learns from the reports that it receives. It knows nothing after a restart: then the setting
counts.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from lcm.core.clock import Clock
from lcm.domain.learned import KEPT, learned
from lcm.domain.lifecycle import RUNNING
from lcm.domain.way_up import WayUp, way_up
from lcm.domain.worker import Worker


class BootTime(NamedTuple):
    """How long launches of a template take."""

    median: timedelta
    most: timedelta
    """Nine of ten are ready then."""


class BootTimes:
    """The newest launches of each template."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._known: dict[str, WayUp] = {}
        """The way up that was counted of each worker: its CML may start anew later."""
        self.on_running: Callable[[str, float], None] = lambda template_name, seconds: None
        """Called with each way up that ends in RUNNING, and how long it took."""
        self.on_ready: Callable[[str, float], None] = lambda template_name, seconds: None
        """Called when CML answers for the first time on a way up."""

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        """Count a launch when CML answers for the first time."""
        if before is None:
            return
        becomes_running = before.status is not RUNNING and after.status is RUNNING
        becomes_ready = not before.cml.is_ready and after.cml.is_ready
        way = way_up(after) if becomes_running or becomes_ready else None
        if way is None:
            return
        seconds = (self._clock.now() - way.began_at).total_seconds()
        if becomes_running:
            self.on_running(after.template_name, seconds)
        if becomes_ready and self._known.get(after.id) != way:
            self._known[after.id] = way
            self.on_ready(after.template_name, seconds)
            if way.is_launch:
                self._seconds[after.template_name].append(seconds)

    def on_worker_end(self, worker_id: str) -> None:
        self._known.pop(worker_id, None)

    def expected(self, template_name: str) -> BootTime | None:
        """Return the times in which half and nine of ten launches were ready; None if too few are known."""
        seconds = self._seconds.get(template_name, ())
        median, most = learned(seconds, 0.5), learned(seconds, 0.9)
        return None if median is None or most is None else BootTime(median, most)
