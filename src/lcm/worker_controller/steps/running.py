"""RUNNING: first what people want, then what EC2 did without us, then look after the worker."""

from lcm.domain.launch import MAX_UNATTENDED_LAUNCHES
from lcm.domain.lifecycle import (
    FAILED,
    PENDING,
    STARTING,
    STOPPING,
    TERMINATED,
    TERMINATING,
    DesiredStatus,
)
from lcm.domain.observation import Absent, Known, Unknown
from lcm.domain.worker import PauseReason
from lcm.worker_controller.decisions import Decision, Move, Situation, Tend, Wait, report_drift


def decide(situation: Situation) -> Decision:
    worker, seen = situation.worker, situation.seen
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "people want it deleted")
    if worker.desired_status is DesiredStatus.STOPPED:
        is_unused = worker.pause_reason is PauseReason.IDLE_TIMEOUT
        return Move(STOPPING, "nobody uses it" if is_unused else "people want it stopped")
    match seen:
        case Known(instance) if instance.state == "running":
            return Tend(instance)
        case Known(instance) if instance.state == "pending":
            return Move(STARTING, "restarted outside LCM", observed=True, drift="instance_pending")
        case Known(instance):
            return report_drift(instance, f"{instance.state} outside LCM")
        case Absent(proof) if worker.imported:
            return Move(
                TERMINATED,
                f"it was imported and its instance is gone: {proof}",
                observed=True,
                drift="instance_missing",
            )
        case Absent(proof) if worker.unattended_launches >= MAX_UNATTENDED_LAUNCHES:
            return Move(FAILED, f"the instance is gone again: {proof}", drift="instance_missing")
        case Absent(proof):
            return Move(PENDING, f"the instance is gone: {proof}", drift="instance_missing")
        case Unknown(reason):
            return Wait(reason)
