"""All monitors of the leader: one per worker, swept by one loop, stopped with the leadership."""

import asyncio
import random
from collections.abc import Iterable
from typing import Final

import structlog

from lcm.cml.session import CmlSession
from lcm.cml.sessions import CmlSessions
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import supervise
from lcm.core.ids import Ids
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import MonitorState
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.handshake_limiter import HandshakeLimiter
from lcm.worker_controller.monitoring.monitor import CmlWebSocketMonitor, ReceiveWatermark
from lcm.worker_controller.monitoring.polling import RestFallback
from lcm.worker_controller.monitoring.protocol import LiveProtocol
from lcm.worker_controller.monitoring.reporter import LiveReporter
from lcm.worker_controller.ports import MonitorTarget, WebSockets

log = structlog.get_logger(__name__)

_LOOP: Final = "monitors"


class _Watched:
    """A monitor, its REST fallback and its tasks."""

    __slots__ = ("check_at", "fallback", "monitor", "polling", "protocol", "task")

    monitor: CmlWebSocketMonitor
    protocol: LiveProtocol

    def __init__(self, fallback: RestFallback) -> None:
        self.fallback = fallback
        self.task: asyncio.Task[None] | None = None
        self.polling: asyncio.Task[None] | None = None
        self.check_at = float("-inf")
        """Before this moment nothing can fail that the connection itself would not report."""

    def on_connection_change(self, is_connected: bool, received_at: float) -> None:
        self.fallback.on_connection_change(is_connected, received_at)
        self.check_at = float("-inf")

    @property
    def is_polling(self) -> bool:
        return self.polling is not None and not self.polling.done()


class CmlWebSocketMonitorRegistry:
    """Runs on the leader; outside of `run` nothing is monitored."""

    def __init__(
        self,
        websockets: WebSockets,
        sessions: CmlSessions,
        reporter: LiveReporter,
        config: MonitoringConfig,
        *,
        clock: Clock,
        ids: Ids,
        chance: random.Random,
        health: Health,
    ) -> None:
        self._websockets = websockets
        self._sessions = sessions
        self._reporter = reporter
        self._config = config
        self._clock = clock
        self._ids = ids
        self._chance = chance
        self._health = health
        self._tasks: asyncio.TaskGroup | None = None
        self._watched: dict[WorkerId, _Watched] = {}
        self.activity_logs: dict[WorkerId, ActivityLog] = {}
        self._begin()

    def _begin(self) -> None:
        config = self._config
        self._limiter = HandshakeLimiter(self._clock, config.handshakes_at_once, config.handshakes_per_second)
        self._polls = asyncio.Semaphore(config.polls_at_once)
        self._watermark = ReceiveWatermark(self._clock.monotonic())
        self.activity_logs.clear()
        self._sessions.forget_all()

    async def run(self) -> None:
        self._begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(
                    supervise(self._sweep_forever, name="monitors", clock=self._clock), name="monitors"
                )
        finally:
            self.stop_all()
            self._tasks = None
            self._health.forget(_LOOP)

    # Commands of the reconciler.

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        """Monitor this worker at this address; a FAILED connection is tried again."""
        if self._tasks is None:
            return
        watched = self._watched.get(target.worker_id)
        if watched is not None:
            if watched.monitor.target == target:
                watched.monitor.retry()
                return
            log.info("monitor target changed", worker_id=target.worker_id, host=target.server.host)
            self._drop(watched)
        self._watch(target, self._tasks)

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        watched = self._watched.get(worker_id)
        if watched is not None:
            self._drop(watched)
            watched.monitor.report_stopped(reason)

    def stop_all(self) -> None:
        """Close every connection now, without reports: the next leader monitors the same workers."""
        for watched in list(self._watched.values()):
            self._drop(watched)

    def forget(self, worker_id: WorkerId) -> None:
        self.stop_monitoring(worker_id, "the worker is gone")
        self.activity_logs.pop(worker_id, None)
        self._sessions.forget(worker_id)

    # Queries.

    def has_activity_log(self, worker_id: WorkerId) -> bool:
        return self._tasks is not None and worker_id in self.activity_logs

    def get_monitor(self, worker_id: WorkerId) -> CmlWebSocketMonitor | None:
        watched = self._watched.get(worker_id)
        return watched.monitor if watched is not None else None

    @property
    def monitors(self) -> Iterable[CmlWebSocketMonitor]:
        return [watched.monitor for watched in self._watched.values()]

    def session_of(self, worker_id: WorkerId) -> CmlSession | None:
        """The session that all clients of its CML share."""
        monitor = self.get_monitor(worker_id)
        return monitor.session if monitor is not None else None

    def _watch(self, target: MonitorTarget, tasks: asyncio.TaskGroup) -> None:
        activity_log = self.activity_logs.get(target.worker_id)
        if activity_log is None:
            activity_log = self.activity_logs[target.worker_id] = ActivityLog(
                target.worker_id, self._ids.new_id(), target.reported
            )
        session = self._sessions.of(target.server)
        fallback = RestFallback(
            session,
            activity_log,
            on_sample=self._reporter.add_sample,
            on_activity=self._reporter.add_activity,
            config=self._config,
            clock=self._clock,
        )
        watched = self._watched[target.worker_id] = _Watched(fallback)
        monitor = watched.monitor = CmlWebSocketMonitor(
            target,
            session=session,
            websockets=self._websockets,
            limiter=self._limiter,
            activity_log=activity_log,
            sink=self._reporter,
            config=self._config,
            clock=self._clock,
            chance=self._chance,
            watermark=self._watermark,
            on_delivery=watched.on_connection_change,
        )
        watched.protocol = monitor.protocol
        if monitor.state is MonitorState.DISABLED:
            log.info("websocket disabled", worker_id=target.worker_id, version=target.cml_version)
            monitor.report_disabled()
            return
        watched.task = tasks.create_task(
            supervise(monitor.run, name="monitor", clock=self._clock), name=f"monitor-{target.worker_id}"
        )

    def _drop(self, watched: _Watched) -> None:
        del self._watched[watched.monitor.worker_id]
        watched.monitor.close()
        for task in (watched.task, watched.polling):
            if task is not None:
                task.cancel()

    # The sweep.

    async def _sweep_forever(self) -> None:
        """Check monitors in slices; most are skipped: they deliver and were reported lately."""
        seconds, slices = self._config.sweep_seconds, self._config.sweep_slices
        while True:
            watched_workers = list(self._watched.values())
            for step in range(slices):
                self._health.tick(_LOOP, 5 * seconds)
                await self._clock.sleep(seconds / slices)
                now = self._clock.monotonic()
                self._watermark.tick(now)
                for watched in watched_workers[step::slices]:
                    if now >= watched.check_at or now >= watched.protocol.report_due_at:
                        self._check(watched, now)

    def _check(self, watched: _Watched, now: float) -> None:
        monitor, protocol, fallback = watched.monitor, watched.protocol, watched.fallback
        if self._watched.get(monitor.worker_id) is not watched:
            return  # dropped since the sweep began
        if fallback.is_due(now) and not watched.is_polling and self._tasks is not None:
            watched.polling = self._tasks.create_task(self._poll(fallback), name="poll")
        watched.check_at = min(monitor.check(now), fallback.due_at)
        if now < protocol.report_due_at:
            return
        sample = protocol.take_sample(self._config.report_interval)
        if sample is not None:
            self._reporter.add_sample(sample)
        for stats in protocol.take_lab_stats(self._config.report_interval):
            self._reporter.add_lab_stats(stats)
        protocol.schedule_next_report(self._config.report_interval)

    async def _poll(self, fallback: RestFallback) -> None:
        async with self._polls:
            try:
                await fallback.poll()
            except Exception:
                log.exception("poll failed")  # a fault of one worker must not end the others' monitors
