"""The REST fallback of a WebSocket connection: the same facts, once a minute."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from lcm.cml.session import CmlSession
from lcm.core.clock import Clock
from lcm.domain.errors import LcmError, Unreachable
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import Sample, SampleSource
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.protocol import read_system_stats
from lcm.worker_controller.monitoring.telemetry_log import clock_skew
from lcm.worker_controller.monitoring.telemetry_reader import read_telemetry

log = structlog.get_logger(__name__)

SYSTEM_STATS_PATH = "/api/v0/system_stats"


class RestFallback:
    """One worker's. Call `poll` when `is_due`; while a connection delivers, that is never."""

    def __init__(
        self,
        session: CmlSession,
        activity_log: ActivityLog,
        *,
        on_sample: Callable[[Sample], None],
        on_activity: Callable[[ActivityLog], None],
        config: MonitoringConfig,
        clock: Clock,
    ) -> None:
        self._session = session
        self._activity_log = activity_log
        self._on_sample = on_sample
        self._on_activity = on_activity
        self._config = config
        self._clock = clock
        self._is_active = True
        self._is_caught_up = False
        """Whether all activity before the present connection was counted."""
        self._switches = 0
        self.due_at = clock.monotonic() + self._first_delay
        self.polls = 0

    @property
    def _first_delay(self) -> float:
        return min(self._config.first_poll_after, self._config.poll_interval)

    def on_connection_change(self, is_connected: bool, received_at: float) -> None:
        """Poll while the connection is lost; when it is back, poll once more for what it missed.

        A connection that was silent before it was lost delivered nothing after `received_at`.
        """
        now = self._clock.monotonic()
        if is_connected:
            self.due_at = now + self._config.catch_up_after
        elif not self._is_active:
            if self._is_caught_up:
                self._activity_log.telemetry.resume(self._clock.now() - timedelta(seconds=now - received_at))
            self.due_at = now + self._first_delay
        self._is_active = not is_connected
        self._is_caught_up = False
        self._switches += 1

    def is_due(self, now: float) -> bool:
        return now >= self.due_at

    async def poll(self) -> None:
        """Read load and activity; each fails on its own. Never raises."""
        is_active, switches = self._is_active, self._switches
        self.due_at = self._clock.monotonic() + self._config.poll_interval
        if is_active:
            self.polls += 1
            await self._try("load", self._ask_for_load)
        is_read = await self._try("activity", self._ask_for_activity)
        # An answer that was in flight while the connection was lost proves nothing about that time.
        if is_read and not is_active and switches == self._switches:
            self._is_caught_up = True
            self.due_at = float("inf")

    async def _try(self, what: str, ask: Callable[[], Awaitable[None]]) -> bool:
        try:
            await ask()
        except LcmError as error:
            log.info("poll failed", worker_id=self.worker_id, what=what, error=str(error))
            return False
        return True

    @property
    def worker_id(self) -> WorkerId:
        return self._activity_log.worker_id

    async def _ask_for_load(self) -> None:
        answer = await self._session.get(SYSTEM_STATS_PATH)
        stats = read_system_stats(answer.body)
        if stats is None:
            raise Unreachable("CML sent an invalid answer")
        self._on_sample(stats.sample(self.worker_id, self._clock.now(), SampleSource.REST))

    async def _ask_for_activity(self) -> None:
        began = self._clock.monotonic()
        answer, telemetry = await read_telemetry(self._session, self._config.telemetry_timeout)
        now = self._clock.now()
        asked_at = now - timedelta(seconds=self._clock.monotonic() - began)
        # A Date header has whole seconds: half of one is right on average.
        skew = clock_skew(asked_at, now, answer.date + timedelta(seconds=0.5) if answer.date else None)
        if skew is None:
            raise Unreachable("the answer took too long: CML's clock cannot be compared")
        fresh = self._activity_log.telemetry.take_new(
            telemetry.entries,
            own_user_id=self._session.user_id,
            live=self._activity_log.recent,
            now=now,
            skew=skew,
        )
        for event in fresh:
            self._activity_log.add(event, SampleSource.REST)
        if fresh:
            self._on_activity(self._activity_log)
