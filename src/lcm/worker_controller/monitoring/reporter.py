"""Report what was received from all workers to the control plane, in as few requests as possible.

Changes and activity are sent at once; what arrives during a request, or within 25 ms of the last one, is
sent together in the next. Load is sent once a second, in small batches, so that a change never waits for
all of it. Everything is bounded: of load the newest wins, of changes the oldest are dropped, and activity
stays in its activity log until the control plane has confirmed it.
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
"""Of load in one request: it takes the control plane a few milliseconds."""

RETRY_BACKOFF: Final = Backoff(max_seconds=30.0)
"""The delay before a failed report is repeated."""

_LOOP: Final = "live reports"
_STATUS_LOOP: Final = "connection reports"
_LOOP_PERIOD: Final = 10.0
"""A request that times out takes half of it."""

_Lab = tuple[WorkerId, str]


@dataclass
class _Batch:
    """The content of one request; `room` is the size that is left."""

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
        # Taken from the front, one of thousands at a time: a plain dict would skip all removed ones.
        self._samples: OrderedDict[tuple[WorkerId, SampleSource], Sample] = OrderedDict()
        self._lab_stats: OrderedDict[_Lab, bytes] = OrderedDict()
        self._changes: deque[LabChange] = deque(maxlen=MAX_CHANGES)
        self._activity_logs: dict[WorkerId, ActivityLog] = {}
        self._statuses: dict[WorkerId, WebSocketReport] = {}
        self._urgent = asyncio.Event()
        self._status_changed = asyncio.Event()

    # Input.

    def add_sample(self, sample: Sample) -> None:
        self._samples[sample.worker_id, sample.source] = sample

    def add_lab_stats(self, stats: LabStats) -> None:
        """Encode at once: the queue holds one block for each lab, not its nodes and links."""
        if len(self._lab_stats) < MAX_LAB_STATS:
            self._lab_stats[stats.worker_id, stats.lab_id] = msgspec.json.encode(stats)

    def add_change(self, change: LabChange) -> None:
        self._changes.append(change)
        self._urgent.set()

    def add_activity(self, activity_log: ActivityLog) -> None:
        self._activity_logs[activity_log.worker_id] = activity_log
        self._urgent.set()

    def set_status(self, worker_id: WorkerId, report: WebSocketReport) -> None:
        """Report the status until it is confirmed or replaced by a newer one."""
        self._statuses[worker_id] = report
        self._status_changed.set()

    # Output.

    async def run(self) -> None:
        """Report until cancelled. Raises Fenced if a newer leader exists."""
        self._clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._report_forever(), name="live-reports")
                tasks.create_task(self._report_statuses_forever(), name="ws-status")
        finally:
            self._health.forget(_LOOP)
            self._health.forget(_STATUS_LOOP)

    async def _report_forever(self) -> None:
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
                self._health.tick(_LOOP, _LOOP_PERIOD + RETRY_BACKOFF.max_seconds)
                await self._clock.sleep(RETRY_BACKOFF.delay_seconds(failures))
                failures += 1

    def _take(self, is_bulk_due: bool) -> _Batch:
        """Take what is waiting, as much as fits; the rest stays and is urgent."""
        batch = _Batch()
        for activity_log in list(self._activity_logs.values()):
            for report in activity_log.unconfirmed_reports():
                if batch.room > 0:
                    batch.activity.append((activity_log, report))
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
        """Send a batch; return whether the control plane confirmed it."""
        try:
            await self._control_plane.report_worker_metrics(batch.reports())
        except Fenced:
            raise
        except LcmError as error:
            log.warning("report failed", error=str(error))
            if isinstance(error, TransientError):
                self._put_back(batch)
            return False
        for activity_log, report in batch.activity:
            activity_log.confirm(report.last_sequence)
            if activity_log.is_confirmed:
                self._activity_logs.pop(activity_log.worker_id, None)
        return True

    def _put_back(self, batch: _Batch) -> None:
        for sample in batch.samples:
            self._samples.setdefault((sample.worker_id, sample.source), sample)
        for lab, stats in batch.lab_stats.items():
            self._lab_stats.setdefault(lab, stats)
        room = MAX_CHANGES - len(self._changes)
        self._changes.extendleft(reversed(batch.changes[-room:] if room else []))
        self._urgent.set()

    async def _report_statuses_forever(self) -> None:
        failures = 0
        while True:
            self._health.tick(_STATUS_LOOP, _LOOP_PERIOD)
            if not await _is_set_within(self._status_changed, _LOOP_PERIOD):
                continue
            self._status_changed.clear()
            if await self._report_statuses():
                failures = 0
                continue
            self._health.tick(_STATUS_LOOP, _LOOP_PERIOD + RETRY_BACKOFF.max_seconds)
            await self._clock.sleep(RETRY_BACKOFF.delay_seconds(failures))
            failures += 1
            self._status_changed.set()

    async def _report_statuses(self) -> bool:
        """Report all statuses; return whether every one was confirmed."""
        is_all_reported = True
        for worker_id, report in list(self._statuses.items()):
            try:
                with span(worker_id=worker_id):
                    await self._control_plane.report_ws_status(worker_id, report)
            except Fenced:
                raise
            except NotFound:
                log.info("worker gone; websocket status dropped", worker_id=worker_id)
            except LcmError as error:
                log.warning("websocket status report failed", worker_id=worker_id, error=str(error))
                is_all_reported = False
                continue
            if self._statuses.get(worker_id) is report:
                del self._statuses[worker_id]
        return is_all_reported


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    if seconds > 0:
        try:
            async with timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
    return event.is_set()
