"""Tells the control plane what came in from all workers, in as few requests as possible.

Changes and signs of people leave at once; whatever comes in while a request is on its way, or within
25 ms of the last one, travels together in the next. Load is told once a second, in small pieces, so that
a change never waits for all of it. Everything is bounded: of load the newest wins, of changes the oldest
are given up, and signs of people stay in their ledger until the control plane has confirmed them.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
import structlog

from lcm.core.backoff import Backoff
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.timeouts import timeout
from lcm.core.tracing import span
from lcm.domain.errors import Fenced, LcmError, NotFound, TransientError
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabChange, LabStats, Sample, SampleSource
from lcm.rest.schemas import ActivityReport, LiveReports, WebSocketReport
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.ports import LiveControlPlane

log = structlog.get_logger(__name__)

MAX_CHANGES: Final = 10_000
MAX_LAB_STATS: Final = 20_000
MAX_BATCH_BYTES: Final = 512 * 1024
"""Half of what the control plane takes: sizes are estimates."""
MAX_LOAD_BYTES: Final = 64 * 1024
"""Of load in one request: the control plane is busy for a few milliseconds with so much."""

UNTOLD: Final = Backoff(max_seconds=30.0)
"""How long to wait before what could not be told is told again."""

_LOOP: Final = "live reports"
_STATUS_LOOP: Final = "connection reports"
_LOOP_PERIOD: Final = 10.0
"""A request that is not answered in time takes half of it."""

_Lab = tuple[WorkerId, str]


@dataclass
class _Batch:
    """What one request carries; `room` is what is left of it."""

    samples: list[Sample] = field(default_factory=list)
    lab_stats: dict[_Lab, bytes] = field(default_factory=dict)
    changes: list[LabChange] = field(default_factory=list)
    activity: list[tuple[ActivityLog, ActivityReport]] = field(default_factory=list)
    room: int = MAX_BATCH_BYTES

    def __bool__(self) -> bool:
        return bool(self.samples or self.lab_stats or self.is_urgent)

    @property
    def is_urgent(self) -> bool:
        return bool(self.changes or self.activity)

    def reports(self) -> LiveReports:
        encoded = [msgspec.Raw(stats) for stats in self.lab_stats.values()]
        return LiveReports(
            samples=self.samples,
            lab_stats=cast("list[LabStats]", encoded),
            lab_changes=self.changes,
            activity=[report for _, report in self.activity],
        )


class LiveReporter:
    """One for all workers. The `add_` methods never wait."""

    def __init__(
        self, control_plane: LiveControlPlane, config: MonitoringConfig, clock: Clock, health: Health
    ) -> None:
        self._control_plane = control_plane
        self._config = config
        self._clock = clock
        self._health = health
        self._clear()

    def _clear(self) -> None:
        # Taken from the front, one of thousands at a time: a plain dict would pass over all the gone ones.
        self._samples: OrderedDict[tuple[WorkerId, SampleSource], Sample] = OrderedDict()
        self._lab_stats: OrderedDict[_Lab, bytes] = OrderedDict()
        self._changes: deque[LabChange] = deque(maxlen=MAX_CHANGES)
        self._ledgers: dict[WorkerId, ActivityLog] = {}
        self._statuses: dict[WorkerId, WebSocketReport] = {}
        self._urgent = asyncio.Event()
        self._status_news = asyncio.Event()

    # What is to be told.

    def add_sample(self, sample: Sample) -> None:
        self._samples[sample.worker_id, sample.source] = sample

    def add_lab_stats(self, stats: LabStats) -> None:
        """Encoded at once: what waits is one block for each lab, not its nodes and links."""
        if len(self._lab_stats) < MAX_LAB_STATS:
            self._lab_stats[stats.worker_id, stats.lab_id] = msgspec.json.encode(stats)

    def add_change(self, change: LabChange) -> None:
        self._changes.append(change)
        self._urgent.set()

    def add_activity(self, ledger: ActivityLog) -> None:
        self._ledgers[ledger.worker_id] = ledger
        self._urgent.set()

    def set_status(self, worker_id: WorkerId, report: WebSocketReport) -> None:
        """Told until it is confirmed, or until there is something newer to tell."""
        self._statuses[worker_id] = report
        self._status_news.set()

    # Telling it.

    async def run(self) -> None:
        """Tell until cancelled. Raises Fenced if a newer leader exists."""
        self._clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tell_forever(), name="live-reports")
                tasks.create_task(self._tell_statuses_forever(), name="ws-status")
        finally:
            self._health.forget(_LOOP)
            self._health.forget(_STATUS_LOOP)

    async def _tell_forever(self) -> None:
        next_bulk_at = self._clock.monotonic() + self._config.bulk_interval
        failures = 0
        while True:
            self._health.tick(_LOOP, _LOOP_PERIOD)
            await _is_set_within(self._urgent, next_bulk_at - self._clock.monotonic())
            began_at = self._clock.monotonic()
            is_bulk_due = began_at >= next_bulk_at
            batch = self._take(is_bulk_due)
            if is_bulk_due and not (self._samples or self._lab_stats):
                next_bulk_at = began_at + self._config.bulk_interval
            if not batch:
                continue
            if await self._send(batch):
                failures = 0
                rest = self._config.report_window - (self._clock.monotonic() - began_at)
                if rest > 0 and batch.is_urgent:
                    await self._clock.sleep(rest)
            else:
                self._health.tick(_LOOP, _LOOP_PERIOD + UNTOLD.max_seconds)
                await self._clock.sleep(UNTOLD.delay_seconds(failures))
                failures += 1

    def _take(self, is_bulk_due: bool) -> _Batch:
        """Whatever is waiting, as much as fits; the rest stays and is urgent."""
        batch = _Batch()
        for ledger in list(self._ledgers.values()):
            for report in ledger.unconfirmed_reports():
                if batch.room > 0:
                    batch.activity.append((ledger, report))
                    batch.room -= 200 + 160 * len(report.activity_events)
        while self._changes and batch.room > 0:
            change = self._changes.popleft()
            batch.changes.append(change)
            batch.room -= 300 + sum(map(len, change.data.values()))
        if not self._changes and batch.room > 0:
            self._urgent.clear()
        if is_bulk_due:
            batch.room = min(batch.room, MAX_LOAD_BYTES)
            while self._samples and batch.room > 0:
                batch.samples.append(self._samples.popitem(last=False)[1])
                batch.room -= 400
            while self._lab_stats and batch.room > 0:
                lab, stats = self._lab_stats.popitem(last=False)
                if len(stats) < MAX_BATCH_BYTES:
                    batch.lab_stats[lab] = stats
                    batch.room -= len(stats)
        return batch

    async def _send(self, batch: _Batch) -> bool:
        """Says whether the control plane has it now."""
        try:
            await self._control_plane.report_worker_metrics(batch.reports())
        except Fenced:
            raise
        except LcmError as error:
            log.warning("cannot report", error=str(error))
            if isinstance(error, TransientError):
                self._put_back(batch)
            return False
        for ledger, report in batch.activity:
            ledger.confirm(report.last_sequence)
            if ledger.is_confirmed:
                self._ledgers.pop(ledger.worker_id, None)
        return True

    def _put_back(self, batch: _Batch) -> None:
        for sample in batch.samples:
            self._samples.setdefault((sample.worker_id, sample.source), sample)
        for lab, stats in batch.lab_stats.items():
            self._lab_stats.setdefault(lab, stats)
        room = MAX_CHANGES - len(self._changes)
        self._changes.extendleft(reversed(batch.changes[-room:] if room else []))
        self._urgent.set()

    async def _tell_statuses_forever(self) -> None:
        failures = 0
        while True:
            self._health.tick(_STATUS_LOOP, _LOOP_PERIOD)
            if not await _is_set_within(self._status_news, _LOOP_PERIOD):
                continue
            self._status_news.clear()
            if await self._tell_statuses():
                failures = 0
                continue
            self._health.tick(_STATUS_LOOP, _LOOP_PERIOD + UNTOLD.max_seconds)
            await self._clock.sleep(UNTOLD.delay_seconds(failures))
            failures += 1
            self._status_news.set()

    async def _tell_statuses(self) -> bool:
        """Says whether everything that was to be told is told."""
        is_all_told = True
        for worker_id, report in list(self._statuses.items()):
            try:
                with span(worker_id=worker_id):
                    await self._control_plane.report_ws_status(worker_id, report)
            except Fenced:
                raise
            except NotFound:
                log.info("nobody to tell the connection of", worker_id=worker_id)
            except LcmError as error:
                log.warning("cannot report the connection", worker_id=worker_id, error=str(error))
                is_all_told = False
                continue
            if self._statuses.get(worker_id) is report:
                del self._statuses[worker_id]
        return is_all_told


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    if seconds > 0:
        try:
            async with timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
    return event.is_set()
