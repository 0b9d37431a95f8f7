"""The monitoring service: what the leader runs beside the reconcile loop."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from lcm.cml.connection import CmlLimits
from lcm.cml.sessions import CmlSessions
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import supervise
from lcm.core.ids import Ids
from lcm.core.telemetry import Reading, Telemetry
from lcm.domain.errors import Fenced, LcmError
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import MonitorState
from lcm.rest.schemas import TelemetryEvent
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.metrics import MetricsLoop
from lcm.worker_controller.monitoring.registry import CmlWebSocketMonitorRegistry
from lcm.worker_controller.monitoring.reporter import LiveReporter
from lcm.worker_controller.monitoring.telemetry_log import (
    activity_in_telemetry,
    is_recording,
    is_switched_on,
)
from lcm.worker_controller.monitoring.telemetry_reader import TELEMETRY_STATE_PATH, read_telemetry
from lcm.worker_controller.ports import LiveControlPlane, MetricsProvider, MonitorTarget, WebSockets

log = structlog.get_logger(__name__)

NEWEST_EVENTS: Final = 20
"""Enough for the last activity; the whole telemetry can be long."""


class LiveMonitoring:
    """Monitors, their reporter and the metrics loop; each is restarted if it fails."""

    def __init__(
        self,
        registry: CmlWebSocketMonitorRegistry,
        reporter: LiveReporter,
        metrics: MetricsLoop,
        clock: Clock,
        telemetry_timeout: float = CmlLimits.telemetry,
    ) -> None:
        self.registry = registry
        self.reporter = reporter
        self.metrics = metrics
        self._clock = clock
        self._telemetry_timeout = telemetry_timeout

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, part in (
                    ("live-reports", self.reporter.run),
                    ("monitors", self.registry.run),
                    ("metrics", self.metrics.run),
                ):
                    tasks.create_task(
                        supervise(part, name=name, clock=self._clock, fatal=(Fenced,)), name=name
                    )
        finally:
            self.registry.stop_all()

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        self.registry.ensure_monitoring(target)

    def is_monitoring(self, worker_id: WorkerId) -> bool:
        monitor = self.registry.get_monitor(worker_id)
        return monitor is not None and monitor.state is not MonitorState.FAILED

    def is_certificate_refused(self, worker_id: WorkerId) -> bool:
        session = self.registry.session_of(worker_id)
        return session is not None and session.is_certificate_refused

    def seconds_since_measurement(self, worker_id: WorkerId) -> float | None:
        return self.metrics.seconds_since(worker_id)

    def request_measurement(self, worker_id: WorkerId) -> None:
        self.metrics.request_measurement(worker_id)

    def has_activity_log(self, worker_id: WorkerId) -> bool:
        return self.registry.has_activity_log(worker_id)

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        self.registry.stop_monitoring(worker_id, reason)

    def forget(self, worker_id: WorkerId) -> None:
        self.registry.forget(worker_id)
        self.metrics.forget(worker_id)

    async def fetch_telemetry(self, worker_id: WorkerId) -> Sequence[TelemetryEvent] | None:
        session = self.registry.session_of(worker_id)
        if session is None:
            return None
        try:
            answer, telemetry = await read_telemetry(session, self._telemetry_timeout)
            now = self._clock.now()
            is_proof = is_recording(telemetry.newest_at, now=now, server_now=answer.date)
            if not is_proof and not is_switched_on((await session.get(TELEMETRY_STATE_PATH)).body):
                log.info("telemetry is switched off", worker_id=worker_id)
                return None
        except (LcmError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            log.info("telemetry not read", worker_id=worker_id, error=str(error))
            return None
        events = activity_in_telemetry(
            telemetry.entries, own_user_id=session.user_id, now=now, server_now=answer.date
        )
        newest = sorted(events, key=lambda event: event.at)[-NEWEST_EVENTS:]
        return [TelemetryEvent(category=event.category, timestamp=event.at) for event in newest]


def assemble_monitoring(
    config: MonitoringConfig,
    *,
    control_plane: LiveControlPlane,
    websockets: WebSockets,
    sessions: CmlSessions,
    cloud_metrics: MetricsProvider,
    clock: Clock,
    ids: Ids,
    chance: random.Random,
    health: Health,
) -> LiveMonitoring:
    """Wire monitoring over the given ports."""
    reporter = LiveReporter(control_plane, config, clock, health)
    registry = CmlWebSocketMonitorRegistry(
        websockets, sessions, reporter, config, clock=clock, ids=ids, chance=chance, health=health
    )
    metrics = MetricsLoop(
        control_plane,
        cloud_metrics,
        registry.session_of,
        reporter.add_sample,
        interval_seconds=config.poll_interval,
        clock=clock,
        health=health,
    )
    return LiveMonitoring(registry, reporter, metrics, clock, config.telemetry_timeout)


def register_monitoring_metrics(telemetry: Telemetry, monitoring: LiveMonitoring, clock: Clock) -> None:
    """Register metrics that are read at each scrape; a worker's series end with the worker."""
    registry = monitoring.registry

    def by_worker(read: Callable[[WorkerId], float]) -> Iterable[Reading]:
        return [(read(worker_id), {"worker_id": worker_id}) for worker_id in registry.activity_logs]

    def is_connected(worker_id: WorkerId) -> float:
        monitor = registry.get_monitor(worker_id)
        return float(monitor is not None and monitor.is_connected)

    def ages() -> Iterable[Reading]:
        now = clock.monotonic()
        return [
            (now - monitor.last_message_at, {"worker_id": monitor.worker_id})
            for monitor in registry.monitors
            if monitor.last_message_at is not None
        ]

    telemetry.gauge(
        "lcm.worker.websocket.connected",
        "1 while a worker's WebSocket connection delivers events, 0 otherwise.",
        lambda: by_worker(is_connected),
    )
    telemetry.counter(
        "lcm.worker.websocket.messages_total",
        "Frames received, by kind.",
        lambda: [
            (count, {"worker_id": worker_id, "event_type": kind})
            for worker_id, activity_log in registry.activity_logs.items()
            for kind, count in activity_log.messages.by_kind().items()
        ],
    )
    telemetry.counter(
        "lcm.worker.websocket.reconnects_total",
        "Attempts to reconnect.",
        lambda: by_worker(lambda worker_id: registry.activity_logs[worker_id].reconnects),
    )
    telemetry.counter(
        "lcm.worker.websocket.activity_events_total",
        "Activity events, by WebSocket or REST.",
        lambda: by_worker(lambda worker_id: registry.activity_logs[worker_id].activity_events),
    )
    telemetry.gauge("lcm.worker.websocket.last_message_age_seconds", "Seconds since the last frame.", ages)
    _register_cml_metrics(telemetry, monitoring)


def _register_cml_metrics(telemetry: Telemetry, monitoring: LiveMonitoring) -> None:
    """Register what CML reports of itself."""
    known = monitoring.metrics
    telemetry.gauge(
        "worker_cml_license_status",
        "1 if CML is registered and its authorization in compliance, 0 otherwise.",
        lambda: [
            (
                float(
                    license_.registration_status == "COMPLETED"
                    and license_.authorization_status == "IN_COMPLIANCE"
                ),
                {"worker_id": worker_id, "tier": license_.product_license or "unknown"},
            )
            for worker_id, license_ in known.licenses.items()
        ],
    )
    telemetry.gauge(
        "worker_cml_healthy",
        "1 if CML's own health check passes, 0 if it fails; no series while CML does not know.",
        lambda: [
            (float(health.valid), {"worker_id": worker_id})
            for worker_id, health in known.health.items()
            if health.valid is not None
        ],
    )
    telemetry.gauge(
        "worker_cml_failing_check",
        "1 for each check of CML's own health check that fails, as `host: check`.",
        lambda: [
            (1, {"worker_id": worker_id, "check": check})
            for worker_id, health in known.health.items()
            for check in health.failing
        ],
    )
    telemetry.gauge(
        "worker_cml_info",
        "1 for the version of CML on a worker.",
        lambda: [
            (1, {"worker_id": monitor.worker_id, "version": monitor.target.cml_version or "unknown"})
            for monitor in monitoring.registry.monitors
        ],
    )
