"""Step 8 of a running worker: scale-down, the drain of idle workers that the fleet does not need.

`domain.scaling.scale_down_guard` decides; the decision is carried out and audited here. With scale-down
on, idle checks suppress the automatic pause: one owner of the stop.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from lcm.core.clock import Clock
from lcm.domain.errors import RequestError
from lcm.domain.idle import PauseGuard
from lcm.domain.launch import WorkerId
from lcm.domain.pause import PauseReason
from lcm.domain.scaling import AuditEvent, ScaleDownPolicy, scale_down_guard
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleCheck
from lcm.worker_controller.ports import ControlPlane

IN_USE: Final = (PauseGuard.ACTIVE_SESSIONS, PauseGuard.NOMINATED, PauseGuard.BUSY)
"""What makes an idle worker no candidate; the control plane would refuse its drain."""
IDLE_TIMEOUT: Final = PauseReason.IDLE_TIMEOUT


@dataclass
class ScaleDown:
    """Drains one worker at a time."""

    control_plane: ControlPlane
    policy: ScaleDownPolicy
    clock: Clock
    running_workers: Callable[[], int]
    counts: Counter[str]
    _skipped: dict[WorkerId, AuditEvent] = field(default_factory=dict)
    _last: float | None = None
    _drained_since_list: set[WorkerId] = field(default_factory=set)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Workers are reconciled concurrently and drained one after the other."""

    def forget(self, worker_id: WorkerId) -> None:
        self._skipped.pop(worker_id, None)

    def on_new_list(self, workers: Iterable[Worker]) -> None:
        """Reset the drains since the last list, and take over those of another leader."""
        self._drained_since_list.clear()
        drained = [worker.pause.last_paused_at for worker in workers if worker.pause.reason is IDLE_TIMEOUT]
        newest = max((at for at in drained if at is not None), default=None)
        if newest is not None:
            last = self.clock.monotonic() - max(0.0, (self.clock.now() - newest).total_seconds())
            self._last = last if self._last is None else max(last, self._last)

    async def consider(self, worker: Worker, check: IdleCheck | None) -> None:
        """Drain the worker if no guard forbids it; without an idle check nothing is done."""
        if not self.policy.enabled or check is None or not check.idle_check_performed:
            return
        async with self._one_at_a_time:
            await self._drain_unless_forbidden(worker, check)

    async def _drain_unless_forbidden(self, worker: Worker, check: IdleCheck) -> None:
        is_active = bool(worker.claims) or check.guard in IN_USE
        is_confirmed = check.telemetry_fetched or not worker.cml.is_ready
        guard = scale_down_guard(
            self.policy,
            is_being_paused=check.auto_pause_triggered,
            is_idle=check.is_idle,
            is_eligible=check.eligible_for_pause and is_confirmed and not is_active,
            running_workers=self.running_workers() - len(self._drained_since_list),
            seconds_since_last=None if self._last is None else self.clock.monotonic() - self._last,
        )
        if guard is not None:
            if self._skipped.get(worker.id) is not guard:
                self._skipped[worker.id] = guard
                await self._audit(worker, guard, check)
            return
        self._skipped.pop(worker.id, None)
        if check.guard is PauseGuard.SECOND_CHECK:
            return
        try:
            await self.control_plane.drain_worker(worker)
        except RequestError as error:
            await self._audit(worker, AuditEvent.SCALE_DOWN_FAILED, check, str(error))
            return
        self._last = self.clock.monotonic()
        self._drained_since_list.add(worker.id)
        self.counts["scale_down_drain_count"] += 1
        await self._audit(worker, AuditEvent.SCALE_DOWN_INITIATED, check)

    async def _audit(self, worker: Worker, event: AuditEvent, check: IdleCheck, reason: str = "") -> None:
        text = reason or f"idle for {check.idle_minutes:.0f} minutes"
        await self.control_plane.record_scaling_audit(event, text, worker.id)
