"""When controllers were last heard of, in memory: the resource scheduler, and those that lead without etcd.

Every call of a scheduler that leads counts: it claims its epoch, reads the snapshot, writes. Control planes
notify each other; while one of them is out of reach a scheduler may be calling that one, and none is reported
silent. A process that has just started knows nothing: its first minute, from the first call of any controller
or the first question, counts as if a scheduler had called.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from lcm.control_plane.records.epochs import Epochs
from lcm.core.clock import Clock
from lcm.core.election import ALONE_SECONDS

SCHEDULER: Final = "resource-scheduler"
SILENT_AFTER: Final = timedelta(seconds=60)
"""Two polls of the scheduler."""
PUBLISHED_EVERY: Final = timedelta(seconds=10)


class SchedulerPresence:
    """Whether a scheduler is at work."""

    def __init__(self, epochs: Epochs, clock: Clock) -> None:
        self._epochs = epochs
        self._clock = clock
        self._heard_at: float | None = None
        self._published_at = float("-inf")
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call when the scheduler is heard of here, every few seconds at most."""
        self._listeners.append(listener)

    def on_call(self, service: str) -> None:
        """Note a call of a service; those of others mean nothing here."""
        now = self._clock.monotonic()
        if service != SCHEDULER:
            self._heard_at = now if self._heard_at is None else self._heard_at
            return
        self._heard_at = now
        if now - self._published_at >= PUBLISHED_EVERY.total_seconds():
            self._published_at = now
            for listener in self._listeners:
                listener()

    def learn(self) -> None:
        """Note that a scheduler called this control plane or another one."""
        self._heard_at = self._clock.monotonic()

    @property
    def is_silent(self) -> bool:
        """Whether no scheduler has called any control plane for a minute, as far as is known."""
        now = self._clock.monotonic()
        if self._heard_at is None:
            self._heard_at = now
        if self._epochs.disconnected_peers:
            return False
        return now - self._heard_at > SILENT_AFTER.total_seconds()


class LoneLeaders:
    """Whether the leader of a service, which leads without a coordination store, is at work.

    It claims its epoch again every few seconds. A process that has just started has heard none of them: a
    leader that is asked for the first time counts as heard of now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_at: dict[str, float] = {}

    def on_claim(self, service: str) -> None:
        """Note that the leader of this service claimed its epoch."""
        self._heard_at[service] = self._clock.monotonic()

    def is_heard(self, service: str) -> bool:
        now = self._clock.monotonic()
        return now - self._heard_at.setdefault(service, now) < ALONE_SECONDS
