"""All monitors of the leader: one per worker, swept by one loop, gone when the lead is."""

import asyncio
import random
from collections.abc import Iterable
from typing import Final

import structlog

from lcm.cml.session import CmlSession
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import supervise
from lcm.core.ids import Ids
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import MonitorState
from lcm.worker_controller.cml_sessions import CmlSessions
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.handshake_limiter import HandshakeLimiter
from lcm.worker_controller.monitoring.monitor import CmlWebSocketMonitor, Hearing
from lcm.worker_controller.monitoring.polling import RestFallback
from lcm.worker_controller.monitoring.protocol import LiveProtocol
from lcm.worker_controller.monitoring.reporter import LiveReporter
from lcm.worker_controller.ports import MonitorTarget, WebSockets

log = structlog.get_logger(__name__)

_LOOP: Final = "monitors"


class _Watched:
    """A monitor, its stand-in and its task."""

    __slots__ = ("fallback", "look_at", "monitor", "polling", "protocol", "task")

    monitor: CmlWebSocketMonitor
    protocol: LiveProtocol

    def __init__(self, fallback: RestFallback) -> None:
        self.fallback = fallback
        self.task: asyncio.Task[None] | None = None
        self.polling: asyncio.Task[None] | None = None
        self.look_at = float("-inf")
        """Before this moment nothing can be wrong that the connection itself would not tell."""

    def follow(self, is_connected: bool, heard_at: float) -> None:
        self.fallback.follow(is_connected, heard_at)
        self.look_at = float("-inf")

    @property
    def is_polling(self) -> bool:
        return self.polling is not None and not self.polling.done()


class CmlWebSocketMonitorRegistry:
    """Run it while leading; outside of `run` it watches nobody."""

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
        self.ledgers: dict[WorkerId, ActivityLog] = {}
        self._begin()

    def _begin(self) -> None:
        config = self._config
        self._limiter = HandshakeLimiter(self._clock, config.handshakes_at_once, config.handshakes_per_second)
        self._polls = asyncio.Semaphore(config.polls_at_once)
        self._hearing = Hearing(self._clock.monotonic())
        self.ledgers.clear()
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

    # What the reconciler asks for.

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        """Watch this worker at this address; what was given up is tried again."""
        if self._tasks is None:
            return
        watched = self._watched.get(target.worker_id)
        if watched is not None:
            if watched.monitor.target == target:
                watched.monitor.retry()
                return
            log.info("watching another server", worker_id=target.worker_id, host=target.server.host)
            self._drop(watched)
        self._watch(target, self._tasks)

    def stop_monitoring(self, worker_id: WorkerId, reason: str) -> None:
        watched = self._watched.get(worker_id)
        if watched is not None:
            self._drop(watched)
            watched.monitor.say_goodbye(reason)

    def stop_all(self) -> None:
        """Close every connection now. Nobody is told: whoever leads next watches the same workers."""
        for watched in list(self._watched.values()):
            self._drop(watched)

    def forget(self, worker_id: WorkerId) -> None:
        self.stop_monitoring(worker_id, "the worker is gone")
        self.ledgers.pop(worker_id, None)
        self._sessions.forget(worker_id)

    # What others read.

    def has_activity_log(self, worker_id: WorkerId) -> bool:
        return self._tasks is not None and worker_id in self.ledgers

    def get_monitor(self, worker_id: WorkerId) -> CmlWebSocketMonitor | None:
        watched = self._watched.get(worker_id)
        return watched.monitor if watched is not None else None

    @property
    def monitors(self) -> Iterable[CmlWebSocketMonitor]:
        return [watched.monitor for watched in self._watched.values()]

    def session_of(self, worker_id: WorkerId) -> CmlSession | None:
        """The login that everybody shares."""
        monitor = self.get_monitor(worker_id)
        return monitor.session if monitor is not None else None

    def _watch(self, target: MonitorTarget, tasks: asyncio.TaskGroup) -> None:
        ledger = self.ledgers.get(target.worker_id)
        if ledger is None:
            ledger = self.ledgers[target.worker_id] = ActivityLog(
                target.worker_id, self._ids.new_id(), target.reported
            )
        session = self._sessions.of(target.server)
        fallback = RestFallback(
            session,
            ledger,
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
            ledger=ledger,
            sink=self._reporter,
            config=self._config,
            clock=self._clock,
            chance=self._chance,
            hearing=self._hearing,
            on_delivery=watched.follow,
        )
        watched.protocol = monitor.protocol
        if monitor.state is MonitorState.DISABLED:
            log.info("no live feed, polling", worker_id=target.worker_id, version=target.cml_version)
            monitor.say_that_it_is_off()
            return
        watched.task = tasks.create_task(
            supervise(monitor.run, name="monitor", clock=self._clock), name=f"monitor-{target.worker_id}"
        )

    def _drop(self, watched: _Watched) -> None:
        del self._watched[watched.monitor.worker_id]
        watched.monitor.hang_up()
        for task in (watched.task, watched.polling):
            if task is not None:
                task.cancel()

    # The sweep.

    async def _sweep_forever(self) -> None:
        """Most monitors are passed over each time: their connection delivers and was reported lately."""
        seconds, slices = self._config.sweep_seconds, self._config.sweep_slices
        while True:
            everybody = list(self._watched.values())
            for step in range(slices):
                self._health.tick(_LOOP, 5 * seconds)
                await self._clock.sleep(seconds / slices)
                now = self._clock.monotonic()
                self._hearing.tick(now)
                for watched in everybody[step::slices]:
                    if now >= watched.look_at or now >= watched.protocol.report_due_at:
                        self._look_at(watched, now)

    def _look_at(self, watched: _Watched, now: float) -> None:
        monitor, protocol, fallback = watched.monitor, watched.protocol, watched.fallback
        if self._watched.get(monitor.worker_id) is not watched:
            return  # dropped since the sweep began
        if fallback.is_due(now) and not watched.is_polling and self._tasks is not None:
            watched.polling = self._tasks.create_task(self._poll(fallback), name="poll")
        watched.look_at = min(monitor.check(now), fallback.due_at)
        if now < protocol.report_due_at:
            return
        sample = protocol.take_sample(self._config.report_interval)
        if sample is not None:
            self._reporter.add_sample(sample)
        for stats in protocol.take_lab_stats(self._config.report_interval):
            self._reporter.add_lab_stats(stats)
        protocol.rest(self._config.report_interval)

    async def _poll(self, fallback: RestFallback) -> None:
        async with self._polls:
            try:
                await fallback.poll()
            except Exception:
                log.exception("a poll failed")  # one worker's oddity must not end the others' monitors
