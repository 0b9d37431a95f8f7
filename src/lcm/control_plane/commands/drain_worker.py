"""Take a worker out of service without throwing anybody out: because a person asks, or nobody uses it."""

from dataclasses import replace
from datetime import timedelta

from lcm.control_plane.commands.detect_idle import recent_load, reserved_if_possible
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Conditions
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.idle import Evidence, is_fresh, pause_guard
from lcm.domain.lifecycle import DRAINING
from lcm.domain.requests import drain
from lcm.domain.worker import PauseReason, Worker


async def drain_worker(
    records: Records,
    policies: Policies,
    worker_id: str,
    *,
    by: str,
    reason: str,
    conditions: Conditions = UNCONDITIONAL,
) -> Worker:
    """The template says how long people are waited for."""
    patience = await _patience_with(records, policies, worker_id)
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        conditions.guard(
            lambda current: drain(current, deadline=now + patience, by=by, reason=reason, now=now)
        ),
    )


async def scale_down_worker(
    records: Records, caches: Caches, policies: Policies, worker_id: str, *, by: str, fence: Fence
) -> Worker:
    """Drain a worker that two looks found unused, the last of them just now.

    Judged again in the compare-and-set: a hold, a session or a sign of people that came first wins.
    """
    patience = await _patience_with(records, policies, worker_id)
    policy, now = policies.idle, records.clock.now()
    checked = caches.idle_checks.of(worker_id)
    evidence = Evidence(
        telemetry_fetched=checked is not None and is_fresh(checked.last, now),
        cpu_percent=recent_load(caches, policies, worker_id, now),
    )
    worker = await records.workers.get(worker_id)
    async with reserved_if_possible(records, policies, worker, evidence, now) as (evidence, may_go):

        def decide(current: Worker) -> Worker:
            if current.status is not DRAINING:
                # To get here may have taken long.
                judged_at = records.clock.now()
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

        return await records.workers.change(worker_id, decide, fence=fence)


async def _patience_with(records: Records, policies: Policies, worker_id: str) -> timedelta:
    worker = await records.workers.get(worker_id)
    template = await records.templates.find(worker.template_name)
    return timedelta(hours=template.drain_timeout_hours) if template else policies.drain_timeout
