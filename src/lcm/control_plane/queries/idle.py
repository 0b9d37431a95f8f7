"""The idle status of a worker."""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.domain.idle import assess, pause_due_at
from lcm.domain.worker import Worker
from lcm.rest.schemas import IdleStatus


def idle_status(records: Records, caches: Caches, policies: Policies, worker: Worker) -> IdleStatus:
    policy, pause = policies.idle, worker.pause
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
        last_activity_check_at=checked.last if checked else worker.activity.checked_at,
        next_idle_check_at=checked.next if checked else None,
        is_idle_detection_enabled=worker.is_idle_detection_enabled,
        hold=worker.hold,
        last_activity_at=worker.activity.last_at,
        pause_reason=pause.reason,
        last_paused_at=pause.last_paused_at,
        last_paused_by=pause.last_paused_by,
        last_resumed_at=pause.last_resumed_at,
        auto_pause_count=pause.auto_pause_count,
        manual_pause_count=pause.manual_pause_count,
        auto_resume_count=pause.auto_resume_count,
        manual_resume_count=pause.manual_resume_count,
    )
