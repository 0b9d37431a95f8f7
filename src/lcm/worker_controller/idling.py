"""Steps 7 and 8 of a running worker: is it used, and if not, may the fleet do without it?

The control plane judges; here the evidence is fetched, the question is asked often enough, and a worker
that scale-down may take is drained. With scale-down on, the control plane is told not to pause: one owner
of the stop.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from lcm.core.clock import Clock
from lcm.domain.errors import RequestError
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.scaling import AuditEvent, ScaleDownPolicy, scale_down_guard
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleCheck, IdleCheckRequest
from lcm.worker_controller.ports import ControlPlane, Monitors

log = structlog.get_logger(__name__)


@dataclass
class IdleKeeper:
    """Remembers only what saves calls; everything that matters is in the records."""

    control_plane: ControlPlane
    monitors: Monitors
    policy: ScaleDownPolicy
    clock: Clock
    running_workers: Callable[[], int]
    counts: Counter[str]
    _next_check: dict[WorkerId, datetime] = field(default_factory=dict)
    _skipped: dict[WorkerId, AuditEvent] = field(default_factory=dict)
    _last_scale_down: float | None = None
    _drained_since_list: set[WorkerId] = field(default_factory=set)

    def forget(self, worker_id: WorkerId) -> None:
        self._next_check.pop(worker_id, None)
        self._skipped.pop(worker_id, None)

    def on_new_list(self) -> None:
        """The count of running workers is fresh again."""
        self._drained_since_list.clear()

    async def look_after(self, worker: Worker) -> None:
        """Ask about a worker if it is due. A pause that was decided is confirmed at the next look."""
        now = self.clock.now()
        if worker.status is not RUNNING or now < self._next_check.get(worker.id, now):
            return
        might_go = worker.target_pause_at is not None and now >= worker.target_pause_at
        telemetry = await self.monitors.telemetry_of(worker.id) if might_go else None
        check = await self.control_plane.detect_worker_idle(
            worker,
            IdleCheckRequest(
                raw_telemetry_events=None if telemetry is None else list(telemetry),
                suppress_auto_pause=self.policy.enabled,
            ),
        )
        if check.next_check_at is not None:
            self._next_check[worker.id] = check.next_check_at
        self.counts["idle_detection_count"] += check.idle_check_performed
        self.counts["auto_pause_count"] += check.auto_pause_triggered
        if check.auto_pause_triggered:
            log.info("paused", worker_id=worker.id, idle_minutes=round(check.idle_minutes))
        if self.policy.enabled and check.idle_check_performed:
            await self._consider_scale_down(worker, check)

    async def _consider_scale_down(self, worker: Worker, check: IdleCheck) -> None:
        since = self._last_scale_down
        guard = scale_down_guard(
            self.policy,
            is_being_paused=check.auto_pause_triggered,
            is_idle=check.is_idle,
            is_eligible=check.eligible_for_pause and not worker.sessions and check.telemetry_fetched,
            running_workers=self.running_workers() - len(self._drained_since_list),
            seconds_since_last=None if since is None else self.clock.monotonic() - since,
        )
        if guard is not None:
            if self._skipped.get(worker.id) is not guard:
                self._skipped[worker.id] = guard
                await self._audit(worker, guard, check)
            return
        self._skipped.pop(worker.id, None)
        try:
            await self.control_plane.drain_worker(worker)
        except RequestError as error:
            await self._audit(worker, AuditEvent.SCALE_DOWN_FAILED, check, str(error))
            return
        self._last_scale_down = self.clock.monotonic()
        self._drained_since_list.add(worker.id)
        self.counts["scale_down_drain_count"] += 1
        await self._audit(worker, AuditEvent.SCALE_DOWN_INITIATED, check)

    async def _audit(self, worker: Worker, event: AuditEvent, check: IdleCheck, reason: str = "") -> None:
        text = reason or f"unused for {check.idle_minutes:.0f} minutes"
        await self.control_plane.record_scaling_audit(event, text, worker.id)
