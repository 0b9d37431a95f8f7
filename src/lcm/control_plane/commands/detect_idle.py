"""The idle pipeline: take telemetry, update activity, evaluate, pause.

A pause takes two idle checks: the first that no guard forbids records the decision, a later one with fresh
evidence requests the stop. Verdict and desired status are one compare-and-set, so activity that is committed
in between always counts. Where a minimum of workers must run, a pause is reserved before it is committed.
"""

import dataclasses
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import with_terms_of_the_leader
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.idle_checks import CheckTimes
from lcm.control_plane.store.port import Fence
from lcm.domain import pause
from lcm.domain.idle import (
    SECOND_CHECK_AFTER,
    Evidence,
    PauseGuard,
    assess,
    decision_time,
    is_fresh,
    pause_guard,
    pause_reason,
    with_countdown,
)
from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.requests import cancel_pause, pause_idle
from lcm.domain.telemetry import ACTIVITY_CATEGORIES
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleCheck, IdleCheckRequest, TelemetryEvent

BY = "idle detection"
_STALE = "the CML telemetry is too old, or the clocks of controller and control plane differ"


async def detect_idle(
    records: Records,
    caches: Caches,
    policies: Policies,
    worker_id: str,
    request: IdleCheckRequest,
    *,
    fence: Fence,
) -> IdleCheck:
    """Check one worker. At most one evaluation per check interval, unless forced."""
    policies = await with_terms_of_the_leader(records, policies)
    policy, now = policies.idle, records.clock.now()
    worker = await records.workers.get(worker_id)
    used_at = newest_use(request.raw_telemetry_events or (), now)
    checked = caches.idle_checks.of(worker_id)
    if not request.force_check and checked is not None and now < checked.next:
        is_newer = is_newer_use(worker, used_at)
        worker = await records.workers.change(worker_id, lambda w: _with_use(w, used_at, now), fence=fence)
        return _result(caches, policies, worker, request, now, performed=False, activity_updated=is_newer)

    guard: PauseGuard | None = None
    is_newer = False
    evidence = Evidence(
        telemetry_fetched=request.raw_telemetry_events is not None,
        is_cml_not_ready=request.is_cml_not_ready,
        cpu_percent=recent_load(caches, policies, worker_id, now),
        suppressed=request.suppress_auto_pause,
    )
    async with reserved_if_possible(records, policies, _with_use(worker, used_at, now), evidence, now) as (
        evidence,
        may_pause,
    ):

        def decide(current: Worker) -> Worker:
            nonlocal guard, is_newer
            is_newer = is_newer_use(current, used_at)
            current = _with_use(current, used_at, now)
            # Reservation and retries may have taken long: stale telemetry counts as not fetched.
            is_current = _is_current(request, records.clock.now())
            current_evidence = evidence if is_current else evidence.outdated()
            guard = pause_guard(current, policy, current_evidence, now)
            if guard is None and may_pause:
                return pause_idle(current, by=BY, reason=pause_reason(current, policy, now), now=now)
            # No guard forbids it only since the reservation: the next idle check reserves it first.
            guard = guard or PauseGuard.SECOND_CHECK
            is_decided = guard in (PauseGuard.SECOND_CHECK, PauseGuard.SUPPRESSED)
            if is_decided:
                verdict = pause.decide(current.pause, at=decision_time(current, now))
            else:
                verdict = pause.withdraw_decision(current.pause, now=now)
            return with_countdown(replace(current, pause=verdict), policy)

        worker = await records.workers.change(worker_id, decide, fence=fence)
    interval = SECOND_CHECK_AFTER if guard is PauseGuard.SECOND_CHECK else policy.check_interval
    caches.idle_checks.note(
        worker_id, CheckTimes(now, now + interval), is_unconfirmed=guard is PauseGuard.UNCONFIRMED
    )
    return _result(
        caches, policies, worker, request, now, performed=True, activity_updated=is_newer, guard=guard
    )


def newest_use(events: Sequence[TelemetryEvent], now: datetime) -> datetime | None:
    """Return the newest activity in CML's telemetry; a timestamp of a clock that is ahead counts as now."""
    moments = [
        moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        for moment in (event.timestamp for event in events if event.category in ACTIVITY_CATEGORIES)
    ]
    return min(max(moments), now) if moments else None


def is_newer_use(worker: Worker, used_at: datetime | None) -> bool:
    if used_at is None:
        return False
    return worker.activity.last_at is None or used_at > worker.activity.last_at


def _with_use(worker: Worker, used_at: datetime | None, now: datetime) -> Worker:
    """Advance the last activity; an older timestamp changes nothing."""
    if not is_newer_use(worker, used_at):
        return worker
    used = replace(worker, activity=replace(worker.activity, last_at=used_at))
    return cancel_pause(used, by=BY, reason="used after the pause was decided", now=now)


def recent_load(caches: Caches, policies: Policies, worker_id: str, now: datetime) -> float | None:
    """Return the highest CPU load in percent that any source measured within the last check interval."""
    since = now - policies.idle.check_interval
    samples = caches.metrics.samples_of(worker_id)
    return max((s.cpu_utilization or 0.0 for s in samples if s.collected_at >= since), default=None)


def _is_current(request: IdleCheckRequest, now: datetime) -> bool:
    return is_fresh(request.asked_at or now, now)


@asynccontextmanager
async def reserved_if_possible(
    records: Records, policies: Policies, worker: Worker, evidence: Evidence, now: datetime
) -> AsyncIterator[tuple[Evidence, bool]]:
    """Yield the evidence with the running workers counted, and whether the pause is reserved.

    Without a minimum no worker is counted. With one, a pause that no other guard forbids is reserved until it
    is committed, and other control planes count it as done meanwhile.
    """
    policy = policies.idle
    if policy.min_workers == 0:
        yield evidence, True
        return

    async def too_few(reserved: Collection[str]) -> str | None:
        nonlocal evidence
        running = await _running_workers(records)
        evidence = dataclasses.replace(evidence, running_workers=len(running.difference(reserved)))
        guard = pause_guard(worker, policy, evidence, now)
        return str(guard) if guard is not None else None

    async with records.reservations.reserve("pause", worker.id, too_few) as refusal:
        yield evidence, refusal is None


async def _running_workers(records: Records) -> set[str]:
    workers = await records.workers.list_live()
    return {w.id for w in workers if w.status is RUNNING and w.desired_status is DesiredStatus.RUNNING}


def _result(
    caches: Caches,
    policies: Policies,
    worker: Worker,
    request: IdleCheckRequest,
    now: datetime,
    *,
    performed: bool,
    activity_updated: bool,
    guard: PauseGuard | None = None,
) -> IdleCheck:
    idleness = assess(worker, policies.idle, now)
    checked = caches.idle_checks.of(worker.id)
    triggered = performed and guard is None
    return IdleCheck(
        worker_id=worker.id,
        checked_at=now,
        telemetry_fetched=request.raw_telemetry_events is not None,
        activity_updated=activity_updated,
        idle_check_performed=performed,
        auto_pause_triggered=triggered,
        is_idle=idleness.is_idle,
        idle_minutes=idleness.idle_minutes,
        eligible_for_pause=idleness.eligible_for_pause or triggered,
        in_snooze_period=idleness.in_snooze_period,
        guard=None if triggered else guard or idleness.guard,
        next_check_at=checked.next if checked else None,
        error=None if _is_current(request, now) else _STALE,
    )
