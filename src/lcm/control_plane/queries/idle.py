"""The idle status of a worker."""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.domain.idle import assess, pause_due_at
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleStatus

_COMPUTED = {"worker_id", "is_idle", "idle_minutes", "eligible_for_pause", "in_snooze_period", "guard"}
_COMPUTED |= {"target_pause_at", "last_activity_check_at", "next_idle_check_at"}
_COPIED = [name for name in IdleStatus.__struct_fields__ if name not in _COMPUTED]


def idle_status(records: Records, caches: Caches, policies: Policies, worker: Worker) -> IdleStatus:
    policy = policies.idle
    idleness = assess(worker, policy, records.clock.now())
    checked = caches.idle_checks.of(worker.id)
    return IdleStatus(
        worker_id=worker.id,
        is_idle=idleness.is_idle,
        idle_minutes=idleness.idle_minutes,
        eligible_for_pause=idleness.eligible_for_pause,
        in_snooze_period=idleness.in_snooze_period,
        guard=idleness.guard,
        target_pause_at=pause_due_at(worker, policy),
        last_activity_check_at=checked.last if checked else worker.last_activity_check_at,
        next_idle_check_at=checked.next if checked else None,
        **{name: getattr(worker, name) for name in _COPIED},
    )
