"""An operator holds a worker, releases the hold, or switches its idle detection."""

from datetime import datetime

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.errors import MomentPassed
from lcm.domain.idle import with_countdown
from lcm.domain.requests import cancel_pause
from lcm.domain.worker import Hold, Worker


async def hold_worker(
    records: Records,
    policies: Policies,
    worker_id: str,
    *,
    until: datetime,
    reason: str,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Keep the worker running until then, idle or not; cancel a pause that is decided and not carried out.

    Raises MomentPassed for a hold that is over already, unless the same request was carried out in time.
    """
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        if until <= now:
            raise MomentPassed(
                f"this hold would have ended at {until.isoformat()}, and it is {now.isoformat()} here;"
                " send a later moment, or DELETE the hold to end it"
            )
        held = replace(worker, hold=Hold(until=until, by=by, reason=reason), updated_at=now)
        return with_countdown(cancel_pause(held, by=by, reason="held", now=now), policies.idle)

    return await records.workers.change(worker_id, preconditions.guard(decide))


async def release_hold(
    records: Records, policies: Policies, worker_id: str, *, preconditions: Preconditions = UNCONDITIONAL
) -> Worker:
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        if worker.hold is None:
            return worker
        return with_countdown(replace(worker, hold=None, updated_at=now), policies.idle)

    return await records.workers.change(worker_id, preconditions.guard(decide))


async def toggle_idle_detection(
    records: Records,
    policies: Policies,
    worker_id: str,
    *,
    enabled: bool,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Switch idle detection; without it a worker runs until an operator stops it."""
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        if worker.is_idle_detection_enabled is enabled:
            return worker
        toggled = replace(worker, is_idle_detection_enabled=enabled, updated_at=now)
        if not enabled:
            toggled = cancel_pause(toggled, by=by, reason="idle detection switched off", now=now)
        return with_countdown(toggled, policies.idle)

    return await records.workers.change(worker_id, preconditions.guard(decide))
