"""The last and the next idle check of each worker, in memory: a check that changes nothing writes nothing.

After a restart every worker is due. A worker whose idle check is overdue, or whose CML cannot be read when it
comes to a pause, costs money unnoticed: both raise an alarm.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from lcm.control_plane.records.worker_cache import WorkerCache


class CheckTimes(NamedTuple):
    last: datetime
    next: datetime


Listener = Callable[[str, CheckTimes, bool], None]
"""Called on every check: the worker, its times, and whether only its silent CML prevented a pause."""


class IdleChecks:
    """The idle checks of running workers."""

    def __init__(self, worker_cache: WorkerCache) -> None:
        self._worker_cache = worker_cache
        self._began_at: datetime | None = None
        """When the checks were first read: earlier ones are not known to this process."""
        self._unconfirmed_since: dict[str, datetime] = {}
        self._times: dict[str, CheckTimes] = {}
        self._listeners: list[Listener] = []

    def of(self, worker_id: str) -> CheckTimes | None:
        return self._times.get(worker_id)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def note(self, worker_id: str, times: CheckTimes, *, is_unconfirmed: bool = False) -> None:
        """Record a check; `is_unconfirmed` if only a silent CML prevented a pause."""
        self._keep(worker_id, times, is_unconfirmed)
        for listener in self._listeners:
            listener(worker_id, times, is_unconfirmed)

    def learn(self, worker_id: str, times: CheckTimes, is_unconfirmed: bool) -> None:
        """Record a check that another control plane made."""
        known = self._times.get(worker_id)
        if known is None or known.last < times.last:
            self._keep(worker_id, times, is_unconfirmed)

    def _keep(self, worker_id: str, times: CheckTimes, is_unconfirmed: bool) -> None:
        self._times[worker_id] = times
        if is_unconfirmed:
            self._unconfirmed_since.setdefault(worker_id, times.last)
        else:
            self._unconfirmed_since.pop(worker_id, None)

    def unconfirmed_since(self, worker_id: str) -> datetime | None:
        """Return since when only a silent CML prevents a pause; None if something else does, or nothing."""
        return self._unconfirmed_since.get(worker_id)

    def unasked_since(self, worker_id: str, now: datetime) -> datetime | None:
        """Return the last check of a worker that has to be checked; None for the others."""
        began_at = self._began_at = self._began_at or now
        known = self._worker_cache.get(worker_id)
        if known is None or known.judged_since is None:
            return None
        times = self._times.get(worker_id)
        return times.last if times is not None else max(known.judged_since, began_at)

    def overdue(self, now: datetime, alarm_after: timedelta) -> int:
        """Return how many workers were not checked for longer than this."""
        moments = [self.unasked_since(known.id, now) for known in self._worker_cache]
        return sum(since is not None and now - since > alarm_after for since in moments)

    def unconfirmed(self, now: datetime, alarm_after: timedelta) -> int:
        """Return how many workers run for longer than this only because their CML cannot be read."""
        return sum(now - since > alarm_after for since in self._unconfirmed_since.values())

    def on_worker_end(self, worker_id: str) -> None:
        self._times.pop(worker_id, None)
        self._unconfirmed_since.pop(worker_id, None)
