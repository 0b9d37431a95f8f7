"""What is remembered of a worker across its connections: signs of people, and counts.

Signs of people are numbered, so that telling them twice counts once, and kept until the control plane
has confirmed them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Final, NamedTuple

from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import ActivityEvent, SampleSource
from lcm.rest.schemas import ActivityReport
from lcm.worker_controller.monitoring.protocol import FrameCounts
from lcm.worker_controller.monitoring.telemetry_log import LiveActivity, TelemetryLog
from lcm.worker_controller.ports import ReportedActivity

MAX_UNCONFIRMED: Final = 1_000
MAX_RECENT: Final = 200


class _Numbered(NamedTuple):
    sequence: int
    source: SampleSource
    event: ActivityEvent


class ActivityLog:
    """One worker's, from its first connection until the worker is gone or the lead is lost.

    Most workers are left alone most of the time, so what holds signs of people is made for the first one.
    """

    __slots__ = (
        "_recent",
        "_sequence",
        "_unconfirmed",
        "diary",
        "messages",
        "reconnects",
        "statuses",
        "stream",
        "worker_id",
    )

    def __init__(self, worker_id: WorkerId, stream: str, told: ReportedActivity) -> None:
        """`told` is what the record holds when the account begins."""
        self.worker_id = worker_id
        self.diary = TelemetryLog(told.since, told.events)
        self.stream = stream
        self._sequence = 0
        self._unconfirmed: deque[_Numbered] | None = None
        self._recent: deque[LiveActivity] | None = None
        self.messages = FrameCounts()
        self.reconnects = 0
        self.statuses = 0
        """How often the state of the connection was told: reports can overtake each other."""

    @property
    def activity_events(self) -> int:
        """How many signs of people there were."""
        return self._sequence

    @property
    def is_confirmed(self) -> bool:
        return not self._unconfirmed

    @property
    def unconfirmed(self) -> list[ActivityEvent]:
        return [numbered.event for numbered in self._unconfirmed or ()]

    @property
    def recent(self) -> Sequence[LiveActivity]:
        """The newest signs that came live, confirmed or not."""
        return self._recent or ()

    def add(self, event: ActivityEvent, source: SampleSource, late_by: timedelta = timedelta(0)) -> None:
        """When too many are unconfirmed the oldest are given up: only the newest decide anything."""
        self._sequence += 1
        if self._unconfirmed is None:
            self._unconfirmed = deque(maxlen=MAX_UNCONFIRMED)
        self._unconfirmed.append(_Numbered(self._sequence, source, event))
        if source is SampleSource.WEBSOCKET:
            if self._recent is None:
                self._recent = deque(maxlen=MAX_RECENT)
            self._recent.append(LiveActivity(self._sequence, event, late_by))

    def unconfirmed_reports(self) -> Iterator[ActivityReport]:
        """All that was not confirmed yet, in order, one report for each stretch from one source."""
        for source, stretch in groupby(list(self._unconfirmed or ()), key=lambda numbered: numbered.source):
            events = list(stretch)
            yield ActivityReport(
                worker_id=self.worker_id,
                activity_events=[numbered.event for numbered in events],
                source=source,
                stream=self.stream,
                last_sequence=events[-1].sequence,
            )

    def confirm(self, last_sequence: int) -> None:
        """The control plane has everything up to this one."""
        while self._unconfirmed and self._unconfirmed[0].sequence <= last_sequence:
            self._unconfirmed.popleft()
        if not self._unconfirmed:
            self._unconfirmed = None
