"""The activity log of a worker, across its connections: activity events, and counters.

Activity events are numbered, so that one that is reported twice counts once, and kept until the control
plane has confirmed them.
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
    """One worker's, from its first connection until the worker is gone or the leadership is lost.

    Most workers are idle most of the time, so the queues of events are created for the first one.
    """

    __slots__ = (
        "_recent",
        "_sequence",
        "_unconfirmed",
        "messages",
        "reconnects",
        "statuses",
        "stream",
        "telemetry",
        "worker_id",
    )

    def __init__(self, worker_id: WorkerId, stream: str, reported: ReportedActivity) -> None:
        """`reported` is the activity that the record holds when the log begins."""
        self.worker_id = worker_id
        self.telemetry = TelemetryLog(reported.since, reported.events)
        self.stream = stream
        self._sequence = 0
        self._unconfirmed: deque[_Numbered] | None = None
        self._recent: deque[LiveActivity] | None = None
        self.messages = FrameCounts()
        self.reconnects = 0
        self.statuses = 0
        """Numbers the reports of the connection's state: they can overtake each other."""

    @property
    def activity_events(self) -> int:
        """The number of activity events."""
        return self._sequence

    @property
    def is_confirmed(self) -> bool:
        return not self._unconfirmed

    @property
    def unconfirmed(self) -> list[ActivityEvent]:
        return [numbered.event for numbered in self._unconfirmed or ()]

    @property
    def recent(self) -> Sequence[LiveActivity]:
        """The newest events that came by WebSocket, confirmed or not."""
        return self._recent or ()

    def add(self, event: ActivityEvent, source: SampleSource, late_by: timedelta = timedelta(0)) -> None:
        """Add an event. When too many are unconfirmed the oldest are dropped: only the newest matter."""
        self._sequence += 1
        if self._unconfirmed is None:
            self._unconfirmed = deque(maxlen=MAX_UNCONFIRMED)
        self._unconfirmed.append(_Numbered(self._sequence, source, event))
        if source is SampleSource.WEBSOCKET:
            if self._recent is None:
                self._recent = deque(maxlen=MAX_RECENT)
            self._recent.append(LiveActivity(self._sequence, event, late_by))

    def unconfirmed_reports(self) -> Iterator[ActivityReport]:
        """All unconfirmed events, in order, one report for each run of events from one source."""
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
        """Drop the events up to this one: the control plane has them."""
        while self._unconfirmed and self._unconfirmed[0].sequence <= last_sequence:
            self._unconfirmed.popleft()
        if not self._unconfirmed:
            self._unconfirmed = None
