"""Take a worker out of service without throwing anybody out: because a person asks, or nobody uses it."""

from dataclasses import replace
from datetime import timedelta

from lcm.control_plane.commands.detect_idle import recent_load, reserved_if_possible
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Conditions
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.idle import Evidence, is_fresh, pause_guard
from lcm.domain.lifecycle import DRAINING
from lcm.domain.requests import drain
from lcm.domain.worker import PauseReason, Worker


async def drain_worker(
    control_plane: ControlPlane,
    worker_id: str,
    *,
    by: str,
    reason: str,
    conditions: Conditions = UNCONDITIONAL,
) -> Worker:
    """The template says how long people are waited for."""
    patience = await _patience_with(control_plane, worker_id)
    now = control_plane.clock.now()
    return await control_plane.workers.change(
        worker_id,
        conditions.guard(
            lambda current: drain(current, deadline=now + patience, by=by, reason=reason, now=now)
        ),
    )


async def scale_down_worker(control_plane: ControlPlane, worker_id: str, *, by: str, fence: Fence) -> Worker:
    """Drain a worker that two looks found unused, the last of them just now.

    Judged again in the compare-and-set: a hold, a session or a sign of people that came first wins.
    """
    patience = await _patience_with(control_plane, worker_id)
    policy, now = control_plane.policies.idle, control_plane.clock.now()
    checked = control_plane.idle_checks.of(worker_id)
    evidence = Evidence(
        telemetry_fetched=checked is not None and is_fresh(checked.last, now),
        cpu_percent=recent_load(control_plane, worker_id, now),
    )
    worker = await control_plane.workers.get(worker_id)
    async with reserved_if_possible(control_plane, worker, evidence, now) as (evidence, may_go):

        def decide(current: Worker) -> Worker:
            if current.status is not DRAINING:
                # To get here may have taken long.
                judged_at = control_plane.clock.now()
                is_current = checked is not None and is_fresh(checked.last, judged_at)
                seen = replace(evidence, telemetry_fetched=is_current)
                guard = pause_guard(current, policy, seen, judged_at)
                if guard is not None or not may_go:
                    raise Conflict(f"worker {worker_id} may not go: {guard or 'it was judged too early'}")
            return drain(
                current,
                deadline=now + patience,
                by=by,
                reason="scale-down",
                now=now,
                why=PauseReason.IDLE_TIMEOUT,
            )

        return await control_plane.workers.change(worker_id, decide, fence=fence)


async def _patience_with(control_plane: ControlPlane, worker_id: str) -> timedelta:
    worker = await control_plane.workers.get(worker_id)
    template = await control_plane.templates.find(worker.template_name)
    return timedelta(hours=template.drain_timeout_hours) if template else control_plane.policies.drain_timeout
