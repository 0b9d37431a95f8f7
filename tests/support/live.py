"""A registry with everything it needs, and a control plane that records the reports."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from lcm.cml.connection import CmlTransport
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlServer, CmlSessions
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.timeouts import timeout
from lcm.domain.errors import NotFound, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.telemetry import ActivityEvent, LabChange, MonitorState, Sample, SampleSource
from lcm.domain.worker import CmlHealth, CmlLicense, Worker
from lcm.rest.schemas import CmlCredentials, LiveReceipt, LiveReports, WebSocketReport
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.monitor import CmlWebSocketMonitor
from lcm.worker_controller.monitoring.registry import CmlWebSocketMonitorRegistry
from lcm.worker_controller.monitoring.reporter import LiveReporter
from lcm.worker_controller.ports import MonitorTarget, ReportedActivity, WebSockets
from support.core import a_worker
from support.memory_live import MemoryLiveServer, MemoryLiveServers
from support.virtual_time import BEGINNING

W1 = WorkerId("w-1")


@dataclass
class CollectingControlPlane:
    """Counts an activity event once, however often it is reported, as the real one does."""

    clock: Clock
    is_reachable: bool = True
    answer_seconds: float = 0.0
    error: Exception | None = None
    loses_replies: bool = False
    requests: list[tuple[float, LiveReports]] = field(default_factory=list)
    statuses: list[tuple[WorkerId, WebSocketReport]] = field(default_factory=list)
    activity: list[tuple[SampleSource, ActivityEvent]] = field(default_factory=list)
    reported_health: list[tuple[WorkerId, CmlHealth | None, CmlLicense | None]] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    logins: dict[WorkerId, CmlCredentials] = field(default_factory=dict)
    """Of workers that have one of their own."""
    _marks: dict[tuple[WorkerId, str], int] = field(default_factory=dict)

    async def list_resources(self) -> list[Worker]:
        return self.workers

    async def report_worker_metrics(self, reports: LiveReports) -> LiveReceipt:
        await self._answer()
        self.requests.append((self.clock.monotonic(), reports))
        for report in reports.activity:
            known = self._marks.get((report.worker_id, report.stream), 0)
            fresh = max(0, report.last_sequence - known)
            events = report.activity_events[-fresh:] if fresh else []
            self.activity += [(report.source, event) for event in events]
            self._marks[report.worker_id, report.stream] = max(known, report.last_sequence)
        if self.loses_replies:
            raise Unreachable("control plane: the reply was lost")
        return LiveReceipt(accepted=1, dropped=0)

    async def get_cml_login(self, worker_id: WorkerId) -> CmlCredentials:
        await self._answer()
        if worker_id not in self.logins:
            raise NotFound(worker_id)
        return self.logins[worker_id]

    async def report_ws_status(self, worker_id: WorkerId, report: WebSocketReport) -> Worker:
        await self._answer()
        self.statuses.append((worker_id, report))
        return a_worker(id=worker_id)

    async def report_cml_health(
        self, worker: Worker, health: CmlHealth | None, license_: CmlLicense | None
    ) -> Worker:
        await self._answer()
        self.reported_health.append((worker.id, health, license_))
        return worker

    async def _answer(self) -> None:
        if self.answer_seconds:
            await self.clock.sleep(self.answer_seconds)
        if self.error is not None:
            raise self.error
        if not self.is_reachable:
            raise Unreachable("control plane: no answer")

    @property
    def samples(self) -> list[Sample]:
        return [sample for _, reports in self.requests for sample in reports.samples]

    @property
    def changes(self) -> list[LabChange]:
        return [change for _, reports in self.requests for change in reports.lab_changes]

    @property
    def categories(self) -> list[str]:
        return [event.category for _, event in self.activity]

    def states(self) -> list[MonitorState]:
        return [report.status for _, report in self.statuses]

    def published(self) -> list[str]:
        """The events that pages get, `connected` and `disconnected`, as the control plane publishes (D-7)."""
        seen: list[str] = []
        for state in self.states():
            if state is MonitorState.CONNECTED and (not seen or seen[-1] != "connected"):
                seen.append("connected")
            elif state in (MonitorState.FAILED, MonitorState.DISCONNECTED) and (
                not seen or seen[-1] != "disconnected"
            ):
                seen.append("disconnected")
        return seen


def a_target(
    cml_version: str | None = "2.9.1+build.7", told: ReportedActivity | None = None, **server: object
) -> MonitorTarget:
    values: dict[str, object] = {
        "worker_id": W1,
        "instance_id": InstanceId("i-1"),
        "host": "10.0.0.1",
        "certificate_sha256": "a" * 64,
        "login": None,
    }
    return MonitorTarget(
        CmlServer(**{**values, **server}),  # type: ignore[arg-type]
        cml_version,
        told or ReportedActivity(BEGINNING),
    )


@dataclass
class Watching:
    """Monitors under test."""

    clock: Clock
    plane: CollectingControlPlane
    registry: CmlWebSocketMonitorRegistry
    health: Health

    @property
    def monitor(self) -> CmlWebSocketMonitor:
        monitor = self.registry.get_monitor(W1)
        assert monitor is not None
        return monitor

    @property
    def state(self) -> MonitorState:
        return self.monitor.state

    async def until(self, is_true: Callable[[], object], within_seconds: float = 600.0) -> float:
        """Wait until it is; how long that took."""
        began = self.clock.monotonic()
        async with timeout(within_seconds):
            while not is_true():
                await self.clock.sleep(0.05)
        return self.clock.monotonic() - began

    async def until_state(self, state: MonitorState, within_seconds: float = 600.0) -> float:
        return await self.until(lambda: self.state is state, within_seconds)


@asynccontextmanager
async def watching(
    websockets: WebSockets,
    transport: CmlTransport,
    clock: Clock,
    config: MonitoringConfig | None = None,
    password: str = "secret",
    chance: random.Random | None = None,
) -> AsyncIterator[Watching]:
    """A registry that runs while the block does."""
    config = config or MonitoringConfig()
    plane, health = CollectingControlPlane(clock), Health(clock)
    reporter = LiveReporter(plane, config, clock, health)
    registry = CmlWebSocketMonitorRegistry(
        websockets,
        CmlSessions(transport, Credentials("admin", password), plane, clock),
        reporter,
        config,
        clock=clock,
        ids=RandomIds(random.Random(1)),
        chance=chance or random.Random(1),
        health=health,
    )
    async with asyncio.TaskGroup() as tasks:
        lives = [tasks.create_task(reporter.run()), tasks.create_task(registry.run())]
        await clock.sleep(0)
        try:
            yield Watching(clock, plane, registry, health)
        finally:
            for life in lives:
                life.cancel()


@asynccontextmanager
async def watching_memory(
    servers: Mapping[str, MemoryLiveServer],
    clock: Clock,
    config: MonitoringConfig | None = None,
    password: str = "secret",
) -> AsyncIterator[tuple[Watching, MemoryLiveServers]]:
    """Servers in memory that push their statistics, and a registry."""
    ports = MemoryLiveServers(servers)
    async with asyncio.TaskGroup() as tasks:
        pushing = [tasks.create_task(server.push_forever()) for server in servers.values()]
        try:
            async with watching(ports, ports, clock, config, password) as live:
                yield live, ports
        finally:
            for task in pushing:
                task.cancel()
