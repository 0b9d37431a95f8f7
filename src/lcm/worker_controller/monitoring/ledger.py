"""What is remembered of a worker across its connections: signs of people, and counts.

Signs of people are numbered, so that telling them twice counts once, and kept until the control plane
has confirmed them.
"""

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from lcm.domain.launch import WorkerId
from lcm.domain.live import ActivityEvent, SampleSource
from lcm.rest.schemas import ActivityReport
from lcm.worker_controller.monitoring.protocol import FrameCounts
from lcm.worker_controller.monitoring.telemetry_log import LiveActivity

MAX_UNCONFIRMED: Final = 1_000
MAX_RECENT: Final = 200


class _Numbered(NamedTuple):
    sequence: int
    source: SampleSource
    event: ActivityEvent


class Ledger:
    """One worker's, from its first connection until the worker is gone or the lead is lost."""

    def __init__(self, worker_id: WorkerId, stream: str) -> None:
        self.worker_id = worker_id
        self._stream = stream
        self._sequence = 0
        self._unconfirmed: deque[_Numbered] = deque(maxlen=MAX_UNCONFIRMED)
        self.recent: deque[LiveActivity] = deque(maxlen=MAX_RECENT)
        """The newest signs that came live, confirmed or not."""
        self.messages = FrameCounts()
        self.reconnects = 0

    @property
    def activity_events(self) -> int:
        """How many signs of people there were."""
        return self._sequence

    @property
    def is_confirmed(self) -> bool:
        return not self._unconfirmed

    @property
    def unconfirmed(self) -> list[ActivityEvent]:
        return [numbered.event for numbered in self._unconfirmed]

    def add(self, event: ActivityEvent, source: SampleSource) -> None:
        """When too many are unconfirmed the oldest are given up: only the newest decide anything."""
        self._sequence += 1
        self._unconfirmed.append(_Numbered(self._sequence, source, event))
        if source is SampleSource.WEBSOCKET:
            self.recent.append(LiveActivity(self._sequence, event))

    def unconfirmed_reports(self) -> Iterator[ActivityReport]:
        """All that was not confirmed yet, in order, one report for each stretch from one source."""
        for source, stretch in groupby(list(self._unconfirmed), key=lambda numbered: numbered.source):
            events = list(stretch)
            yield ActivityReport(
                worker_id=self.worker_id,
                activity_events=[numbered.event for numbered in events],
                source=source,
                stream=self._stream,
                last_sequence=events[-1].sequence,
            )

    def confirm(self, last_sequence: int) -> None:
        """The control plane has everything up to this one."""
        while self._unconfirmed and self._unconfirmed[0].sequence <= last_sequence:
            self._unconfirmed.popleft()
