"""How long the labs of each topology took from their import until every node had booted, in memory.

The sessions say so themselves: those of this process when they are committed, those of other control planes
through the feed, and all that are stored in the first pass of the session sweep. Until then the setting
counts.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import INSTANTIATING, READY
from lcm.domain.learned import KEPT, learned

TOPOLOGIES: Final = 1_000
"""So many are known, those that were ready last."""
SHARE: Final = 0.95


class LabTimes:
    """The newest labs of each topology: versions of a definition may share one."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[tuple[datetime, str], float]] = {}
        """By the time at which each was ready, and its session: a record may be learned again."""

    def on_session_commit(self, before: LabletSession | None, after: LabletSession) -> None:
        if after.status is READY and (before is None or before.status is not READY):
            self.learn(after)

    def learn(self, session: LabletSession) -> None:
        """Count every time that its lab came up."""
        for ready_at, took in _times_to_ready(session):
            known = self._seconds.pop(session.lab_yaml_hash, {})
            known[ready_at, session.id] = took.total_seconds()
            if len(known) > KEPT:
                del known[min(known)]
            self._seconds[session.lab_yaml_hash] = known
        while len(self._seconds) > TOPOLOGIES:
            del self._seconds[next(iter(self._seconds))]

    def expected(self, lab_yaml_hash: str) -> timedelta:
        """Return the time in which 19 of 20 labs were ready; none if too few are known."""
        return learned(self._seconds.get(lab_yaml_hash, {}).values(), SHARE) or timedelta()

    def median(self, lab_yaml_hash: str) -> timedelta | None:
        """Return the time in which half of the labs were ready; None if too few are known."""
        return learned(self._seconds.get(lab_yaml_hash, {}).values(), 0.5)


def _times_to_ready(session: LabletSession) -> Iterator[tuple[datetime, timedelta]]:
    began_at = None
    for line in session.state_history:
        if line.target is INSTANTIATING:
            began_at = line.at
        elif line.target is READY and began_at is not None:
            yield line.at, max(timedelta(), line.at - began_at)
            began_at = None
