"""The stand-in for a live connection: the same facts by REST, once a minute."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
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

log = structlog.get_logger(__name__)

SYSTEM_STATS_PATH = "/api/v0/system_stats"
TELEMETRY_PATH = "/api/v0/telemetry/events"


class RestFallback:
    """One worker's. `is_due` says when to call `poll`; while a connection delivers, never."""

    def __init__(
        self,
        session: CmlSession,
        ledger: ActivityLog,
        *,
        on_sample: Callable[[Sample], None],
        on_activity: Callable[[ActivityLog], None],
        config: MonitoringConfig,
        clock: Clock,
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._on_sample = on_sample
        self._on_activity = on_activity
        self._config = config
        self._clock = clock
        self._is_standing_in = True
        self._is_caught_up = False
        """Whether everything up to the present connection was counted."""
        self._switches = 0
        self.due_at = clock.monotonic() + self._first_delay
        self.polls = 0

    @property
    def _first_delay(self) -> float:
        return min(self._config.first_poll_after, self._config.poll_interval)

    def follow(self, is_connected: bool, heard_at: float) -> None:
        """Stand in when the connection is lost; when it is back, look once more at what it missed.

        A connection that was silent before it was lost told nothing after `heard_at`.
        """
        now = self._clock.monotonic()
        if is_connected:
            self.due_at = now + self._config.catch_up_after
        elif not self._is_standing_in:
            if self._is_caught_up:
                self._ledger.diary.resume(self._clock.now() - timedelta(seconds=now - heard_at))
            self.due_at = now + self._first_delay
        self._is_standing_in = not is_connected
        self._is_caught_up = False
        self._switches += 1

    def is_due(self, now: float) -> bool:
        return now >= self.due_at

    async def poll(self) -> None:
        """Ask for load and for signs of people; each fails on its own. Never raises."""
        is_standing_in, switches = self._is_standing_in, self._switches
        self.due_at = self._clock.monotonic() + self._config.poll_interval
        if is_standing_in:
            self.polls += 1
            await self._try("load", self._ask_for_load)
        is_told = await self._try("activity", self._ask_for_activity)
        # An answer that was on its way while the connection was lost says nothing about that time.
        if is_told and not is_standing_in and switches == self._switches:
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
        return self._ledger.worker_id

    async def _ask_for_load(self) -> None:
        answer = await self._session.get(SYSTEM_STATS_PATH)
        stats = read_system_stats(answer.body)
        if stats is None:
            raise Unreachable("the answer makes no sense")
        self._on_sample(stats.sample(self.worker_id, self._clock.now(), SampleSource.REST))

    async def _ask_for_activity(self) -> None:
        began = self._clock.monotonic()
        answer = await self._session.get(TELEMETRY_PATH)
        now = self._clock.now()
        asked_at = now - timedelta(seconds=self._clock.monotonic() - began)
        # A date has whole seconds: half of one is right on average.
        skew = clock_skew(asked_at, now, answer.date + timedelta(seconds=0.5) if answer.date else None)
        if skew is None:
            raise Unreachable("it took too long to tell when things happened there")
        try:
            fresh = self._ledger.diary.take_new(
                answer.body,
                own_user_id=self._session.user_id,
                live=self._ledger.recent,
                now=now,
                skew=skew,
            )
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Unreachable(f"the answer makes no sense: {error}") from None
        for event in fresh:
            self._ledger.add(event, SampleSource.REST)
        if fresh:
            self._on_activity(self._ledger)
