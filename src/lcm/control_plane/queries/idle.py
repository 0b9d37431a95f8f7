"""How a worker stands between use and pause."""

from lcm.control_plane.context import ControlPlane
from lcm.domain.idle import assess, pause_due_at
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleStatus

_JUDGED = {"worker_id", "is_idle", "idle_minutes", "eligible_for_pause", "in_snooze_period", "guard"}
_JUDGED |= {"target_pause_at"}
_COPIED = [name for name in IdleStatus.__struct_fields__ if name not in _JUDGED]


def idle_status(control_plane: ControlPlane, worker: Worker) -> IdleStatus:
    policy = control_plane.policies.idle
    idleness = assess(worker, policy, control_plane.clock.now())
    return IdleStatus(
        worker_id=worker.id,
        is_idle=idleness.is_idle,
        idle_minutes=idleness.idle_minutes,
        eligible_for_pause=idleness.eligible_for_pause,
        in_snooze_period=idleness.in_snooze_period,
        guard=idleness.guard,
        target_pause_at=pause_due_at(worker, policy),
        **{name: getattr(worker, name) for name in _COPIED},
    )
