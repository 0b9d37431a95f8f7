"""What is counted of lablet sessions for metrics, in memory.

Commits of this process count at once. Those of other control planes arrive through the replication feed, and
the session sweep takes over what the records say, so that a number is wrong for a minute at most.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from lcm.domain.lablet.session import LabletSession, WaitCode
from lcm.domain.lablet.states import EXPIRED, FAILED, READY, SessionStatus
from lcm.domain.lablet.timeslot import Timeslot

MISSED = "timeslot_missed"


class _Figures(NamedTuple):
    version: int
    status: SessionStatus
    code: WaitCode | None
    timeslot: Timeslot | None


class SessionStats:
    """The sessions that are not archived, and what happened to them."""

    def __init__(self) -> None:
        self._known: dict[str, _Figures] = {}
        self.transitions: Counter[tuple[str, str]] = Counter()
        """Changes of status that this process committed."""
        self.missed = 0
        """Sessions that this process ended because they missed their timeslot."""
        self.on_waited: Callable[[str, float], None] = lambda *_: None
        """Called with the reason and the seconds when a session no longer waits for that reason."""
        self.on_ready: Callable[[str, float], None] = lambda *_: None
        """Called with the definition and the seconds that its lab took to be ready."""
        self._punctual: Counter[bool] = Counter()
        """Booked sessions that were ready by the start of their timeslot, and those that were not."""

    def on_session_commit(self, before: LabletSession | None, after: LabletSession) -> None:
        self.learn(after)
        if before is None:
            return
        if before.status is not after.status:
            self.transitions[before.status, after.status] += 1
            self.missed += after.status is SessionStatus.EXPIRED and after.end_text == MISSED
            self._on_status(before, after)
        waited, waits = before.waits_for, after.waits_for
        if waited is not None and (waits is None or waits.code is not waited.code):
            self.on_waited(waited.code, max(0.0, (after.updated_at - waited.since).total_seconds()))

    def _on_status(self, before: LabletSession, after: LabletSession) -> None:
        if after.status is READY:
            since = before.state_history[-1].at
            self.on_ready(after.definition_name, max(0.0, (after.updated_at - since).total_seconds()))
        is_punctual = _is_punctual(before, after)
        if is_punctual is not None:
            self._punctual[is_punctual] += 1

    @property
    def on_time_ratio(self) -> float | None:
        """The share of booked sessions that were ready by the start of their timeslot; None without any."""
        judged = self._punctual.total()
        return self._punctual[True] / judged if judged else None

    def learn(self, session: LabletSession) -> None:
        """Take over a record that is newer than the one that is known."""
        known = self._known.get(session.id)
        if known is None or known.version <= session.version:
            self._known[session.id] = _figures(session)

    def forget(self, session: LabletSession) -> None:
        self._known.pop(session.id, None)

    def take_over(self, sessions: Iterable[LabletSession]) -> None:
        """Replace everything by what the records say."""
        self._known = {session.id: _figures(session) for session in sessions}

    def by_status(self) -> Counter[SessionStatus]:
        """Return the number of sessions in each status, those without any too."""
        counts = Counter(each.status for each in self._known.values())
        return Counter({status: counts[status] for status in SessionStatus})

    def by_reason(self) -> Counter[WaitCode]:
        """Return the number of sessions that wait, by reason."""
        return Counter(each.code for each in self._known.values() if each.code is not None)

    def active_timeslots(self, now: datetime) -> int:
        """Return how many sessions have a timeslot that has begun and not ended."""
        slots = (each.timeslot for each in self._known.values())
        return sum(slot is not None and slot.start <= now < slot.end for slot in slots)


def _is_punctual(before: LabletSession, after: LabletSession) -> bool | None:
    """Return whether a booked session is ready in time; None if this change does not decide it."""
    was_ready = any(entry.target is READY for entry in before.state_history)
    if after.timeslot is None or was_ready:
        return None
    if after.status is READY:
        return after.updated_at <= after.timeslot.start
    return False if after.status in (EXPIRED, FAILED) else None


def _figures(session: LabletSession) -> _Figures:
    code = session.waits_for.code if session.waits_for is not None else None
    timeslot = None if session.is_ended else session.timeslot
    return _Figures(session.version, session.status, code, timeslot)
