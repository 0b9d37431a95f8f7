"""Step 7 of a running worker: the idle check.

The control plane decides; the controller fetches the evidence and checks at the intervals it is given.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from lcm.core.clock import Clock
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleCheck, IdleCheckRequest
from lcm.worker_controller.ports import ControlPlane, Monitors

log = structlog.get_logger(__name__)


@dataclass
class IdleChecker:
    """Keeps only what saves calls; everything that matters is in the records."""

    control_plane: ControlPlane
    monitors: Monitors
    suppress_auto_pause: bool
    """Scale-down stops idle workers, so that no automatic pause does."""
    clock: Clock
    counts: Counter[str]
    _next_check: dict[WorkerId, float] = field(default_factory=dict)
    """On the monotonic clock: read for every worker in every resync."""

    def forget(self, worker_id: WorkerId) -> None:
        self._next_check.pop(worker_id, None)

    def is_due(self, worker: Worker) -> bool:
        next_check = self._next_check.get(worker.id)
        return next_check is None or self.clock.monotonic() >= next_check

    async def check(self, worker: Worker, *, not_ready_at: datetime | None = None) -> IdleCheck | None:
        """The result, if a check was due. A decided pause is confirmed by the next check.

        `not_ready_at` is when CML was tried and was not ready.
        """
        if worker.status is not RUNNING or not self.is_due(worker):
            return None
        # Read before CML is called: activity from then on is not in its answer.
        now = not_ready_at or self.clock.now()
        telemetry = await self.monitors.fetch_telemetry(worker.id) if could_be_paused(worker, now) else None
        check = await self.control_plane.detect_worker_idle(
            worker,
            IdleCheckRequest(
                raw_telemetry_events=None if telemetry is None else list(telemetry),
                asked_at=now,
                suppress_auto_pause=self.suppress_auto_pause,
                is_cml_not_ready=not_ready_at is not None,
            ),
        )
        if check.next_check_at is not None:
            # Both by the control plane's clock, which may differ from ours.
            seconds = (check.next_check_at - check.checked_at).total_seconds()
            self._next_check[worker.id] = self.clock.monotonic() + seconds
        self.counts["idle_detection_count"] += check.idle_check_performed
        self.counts["auto_pause_count"] += check.auto_pause_triggered
        if check.auto_pause_triggered:
            log.info("worker paused", worker_id=worker.id, idle_minutes=round(check.idle_minutes))
        if check.error is not None:
            log.warning("idle check rejected", worker_id=worker.id, reason=check.error)
        return check


def could_be_paused(worker: Worker, now: datetime) -> bool:
    """Whether the result could be a pause, so that CML's telemetry is needed."""
    return worker.pause.due_at is not None and now >= worker.pause.due_at
