"""Takes a worker out of service without ending its sessions: on request, or because it is idle."""

from dataclasses import replace
from datetime import timedelta

from lcm.control_plane.commands.claim_leadership import with_terms_of_the_leader
from lcm.control_plane.commands.detect_idle import recent_load, reserved_if_possible
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.idle import Evidence, is_fresh, pause_guard
from lcm.domain.lifecycle import DRAINING
from lcm.domain.pause import PauseReason
from lcm.domain.requests import drain, request
from lcm.domain.worker import Action, Worker


async def drain_worker(
    records: Records,
    policies: Policies,
    worker_id: str,
    *,
    by: str,
    reason: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Drain a worker; its template or the fleet's setting says how long that waits for sessions."""
    timeout = await _drain_timeout(records, policies, worker_id)
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        preconditions.guard(
            lambda current: drain(current, deadline=now + timeout, by=by, reason=reason, now=now)
        ),
    )


async def scale_down_worker(
    records: Records, caches: Caches, policies: Policies, worker_id: str, *, by: str, fence: Fence
) -> Worker:
    """Drain a worker that two idle checks found idle, the last of them just now.

    The guards are evaluated again in the compare-and-set: a hold, a session or activity committed first wins.
    """
    timeout = await _drain_timeout(records, policies, worker_id)
    policies = await with_terms_of_the_leader(records, policies)
    policy, now = policies.idle, records.clock.now()
    checked = caches.idle_checks.of(worker_id)
    evidence = Evidence(
        telemetry_fetched=checked is not None and is_fresh(checked.last, now),
        cpu_percent=recent_load(caches, policies, worker_id, now),
    )
    worker = await records.workers.get(worker_id)
    async with reserved_if_possible(records, policies, worker, evidence, now) as (evidence, is_reserved):

        def decide(current: Worker) -> Worker:
            if current.status is not DRAINING:
                # Reservation and retries may have taken long.
                checked_at = records.clock.now()
                is_current = checked is not None and is_fresh(checked.last, checked_at)
                current_evidence = replace(evidence, telemetry_fetched=is_current)
                guard = pause_guard(current, policy, current_evidence, checked_at)
                if guard is not None or not is_reserved:
                    raise Conflict(
                        f"worker {worker_id} cannot be drained: {guard or 'its idle check is not due yet'}"
                    )
            return drain(
                current,
                deadline=now + timeout,
                by=by,
                reason="scale-down",
                now=now,
                why=PauseReason.IDLE_TIMEOUT,
            )

        return await records.workers.change(worker_id, decide, fence=fence)


async def cancel_scale_down(records: Records, worker_id: str, *, by: str, fence: Fence) -> Worker:
    """Take a worker back into service that scale-down drains; a drain that a person requested goes on."""
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        if worker.status is DRAINING and worker.pause.reason is not PauseReason.IDLE_TIMEOUT:
            raise Conflict(f"worker {worker.name} is drained at a person's request; place elsewhere")
        return request(worker, Action.CANCEL_DRAIN, by=by, now=now)

    return await records.workers.change(worker_id, decide, fence=fence)


async def _drain_timeout(records: Records, policies: Policies, worker_id: str) -> timedelta:
    worker = await records.workers.get(worker_id)
    template = await records.templates.find(worker.template_name)
    hours = template.drain_timeout_hours if template else None
    return policies.drain_timeout if hours is None else timedelta(hours=hours)
