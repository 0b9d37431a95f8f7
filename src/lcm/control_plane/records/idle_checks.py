"""When each worker was judged last and is judged next, in memory: a look that changes nothing writes nothing.

After a restart every worker is simply due. A worker that nobody asks about for too long, or whose CML cannot
be asked when it comes to a pause, costs money unseen: both raise an alarm.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from lcm.control_plane.records.worker_cache import WorkerCache


class CheckTimes(NamedTuple):
    last: datetime
    next: datetime


Listener = Callable[[str, CheckTimes, bool], None]
"""Told of every check: the worker, its times, and whether only the silence of its CML forbade a pause."""


class IdleChecks:
    """Of the workers that run."""

    def __init__(self, worker_cache: WorkerCache) -> None:
        self._worker_cache = worker_cache
        self._began_at: datetime | None = None
        """When somebody first wanted to know about all of them: what was before is not known."""
        self._unconfirmed_since: dict[str, datetime] = {}
        self._times: dict[str, CheckTimes] = {}
        self._listeners: list[Listener] = []

    def of(self, worker_id: str) -> CheckTimes | None:
        return self._times.get(worker_id)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def note(self, worker_id: str, times: CheckTimes, *, is_unconfirmed: bool = False) -> None:
        """It was judged; `is_unconfirmed` if only the silence of its CML forbade a pause."""
        self._keep(worker_id, times, is_unconfirmed)
        for listener in self._listeners:
            listener(worker_id, times, is_unconfirmed)

    def learn(self, worker_id: str, times: CheckTimes, is_unconfirmed: bool) -> None:
        """Another control plane judged it."""
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
        """Since when it would have been paused, had its CML answered; None if that is not what keeps it."""
        return self._unconfirmed_since.get(worker_id)

    def unasked_since(self, worker_id: str, now: datetime) -> datetime | None:
        """Since when nobody asked whether it is used; None if nobody has to."""
        began_at = self._began_at = self._began_at or now
        known = self._worker_cache.get(worker_id)
        if known is None or known.judged_since is None:
            return None
        times = self._times.get(worker_id)
        return times.last if times is not None else max(known.judged_since, began_at)

    def overdue(self, now: datetime, alarm_after: timedelta) -> int:
        """How many workers nobody asked about for so long."""
        moments = [self.unasked_since(known.id, now) for known in self._worker_cache]
        return sum(since is not None and now - since > alarm_after for since in moments)

    def unconfirmed(self, now: datetime, alarm_after: timedelta) -> int:
        """How many workers keep running for so long only because their CML cannot be asked."""
        return sum(now - since > alarm_after for since in self._unconfirmed_since.values())

    def on_worker_end(self, worker_id: str) -> None:
        self._times.pop(worker_id, None)
        self._unconfirmed_since.pop(worker_id, None)
