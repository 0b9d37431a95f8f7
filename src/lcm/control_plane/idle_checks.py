"""When each worker was judged last and is judged next, in memory: a look that changes nothing writes nothing.

After a restart every worker is simply due.
"""

from datetime import datetime
from typing import NamedTuple

from lcm.control_plane.roster import Roster


class CheckTimes(NamedTuple):
    last: datetime
    next: datetime


class IdleChecks:
    """Of the workers that run."""

    def __init__(self, roster: Roster) -> None:
        self._times: dict[str, CheckTimes] = {}
        roster.on_end(self._forget)

    def of(self, worker_id: str) -> CheckTimes | None:
        return self._times.get(worker_id)

    def note(self, worker_id: str, times: CheckTimes) -> None:
        self._times[worker_id] = times

    def _forget(self, worker_id: str) -> None:
        self._times.pop(worker_id, None)
