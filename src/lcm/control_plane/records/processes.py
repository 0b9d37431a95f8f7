"""The processes of LCM, by their own reports, in memory: nothing acts on it, people read it.

Each process reports itself every few seconds to one control plane, and control planes repeat it to each
other. One that was stopped is forgotten after a while.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from lcm.core.clock import Clock
from lcm.rest.system import REPORT_SECONDS, ProcessReport, ProcessView

SILENT_AFTER: Final = timedelta(seconds=3 * REPORT_SECONDS)
FORGOTTEN_AFTER: Final = timedelta(minutes=5)
MAX_PROCESSES: Final = 200


class Processes:
    """The last report of each process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: datetime | None = None
        self._known: dict[tuple[str, str], ProcessView] = {}
        self._listeners: list[Callable[[ProcessReport], None]] = []

    @property
    def since(self) -> datetime:
        """Since when reports are known here: from the first report or question on."""
        self._since = self._since or self._clock.now()
        return self._since

    def subscribe(self, listener: Callable[[ProcessReport], None]) -> None:
        """Call on every report that is made here."""
        self._listeners.append(listener)

    def note(self, report: ProcessReport) -> None:
        """Take the report of a process, this one included."""
        self.learn(report)
        for listener in self._listeners:
            listener(report)

    def learn(self, report: ProcessReport) -> None:
        """Take a report that this or another control plane received."""
        _ = self.since
        key = report.service, report.instance_id
        self._known.pop(key, None)
        self._known[key] = ProcessView(report=report, reported_at=self._clock.now(), is_silent=False)
        if len(self._known) > MAX_PROCESSES:
            del self._known[next(iter(self._known))]

    def now(self) -> list[ProcessView]:
        """Return the known processes by service and name."""
        now = self._clock.now()
        self._known = {
            key: ProcessView(
                report=known.report,
                reported_at=known.reported_at,
                is_silent=now - known.reported_at > SILENT_AFTER,
            )
            for key, known in self._known.items()
            if now - known.reported_at <= FORGOTTEN_AFTER
        }
        return [self._known[key] for key in sorted(self._known)]
