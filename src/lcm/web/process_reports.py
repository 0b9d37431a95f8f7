"""Each process reports itself to a control plane, so that people see all of them in one place."""

from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from lcm import VERSION
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.telemetry import LoopLagMonitor
from lcm.domain.errors import LcmError
from lcm.rest.system import REPORT_SECONDS, ControllerState, FleetFinds, ProcessReport

log = structlog.get_logger(__name__)


class ProcessReporter(HostedService):
    """Sends the report of this process again and again; a report that gets lost is not missed."""

    name = "process-reporter"

    def __init__(
        self,
        send: Callable[[ProcessReport], Awaitable[None]],
        *,
        service: str,
        instance_id: str,
        clock: Clock,
        health: Health,
        lag: LoopLagMonitor,
        controller: Callable[[], ControllerState | None] = lambda: None,
        finds: Callable[[], FleetFinds | None] = lambda: None,
    ) -> None:
        self._send = send
        self._service = service
        self._instance_id = instance_id
        self._clock = clock
        self._health = health
        self._lag = lag
        self._controller = controller
        self._finds = finds

    async def run(self) -> None:
        started_at = self._clock.now()
        is_heard = True
        while True:
            try:
                await self._send(self._report(started_at))
                is_heard = True
            except LcmError as error:
                if is_heard:
                    log.warning("process not reported", error=str(error))
                is_heard = False
            await self._clock.sleep(REPORT_SECONDS)

    def _report(self, started_at: datetime) -> ProcessReport:
        return ProcessReport(
            service=self._service,
            instance_id=self._instance_id,
            version=VERSION,
            started_at=started_at,
            loop_lag_seconds=self._lag.recent_max_seconds,
            frozen=tuple(self._health.freeze_reasons),
            silent_loops=tuple(self._health.silent_loops),
            controller=self._controller(),
            finds=self._finds(),
        )
