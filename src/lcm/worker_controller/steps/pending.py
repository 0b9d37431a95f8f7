"""PENDING: ensure exactly one instance, or none if the worker is to be stopped or terminated."""

from lcm.domain.launch import MAX_UNATTENDED_LAUNCHES
from lcm.domain.lifecycle import FAILED, PROVISIONING, TERMINATED, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import (
    Decision,
    Launch,
    Move,
    Nothing,
    Situation,
    Wait,
    WithdrawLaunchIntent,
)


def decide(situation: Situation) -> Decision:
    """Adopt an instance that exists, whichever process launched it; otherwise launch one."""
    worker, observation = situation.worker, situation.observation
    wanted = worker.desired_status
    match observation:
        case Known(instance) if not instance.is_gone:
            return Move(PROVISIONING, f"instance {instance.id} exists", instance=instance)
        case Known() | Absent() if worker.imported:
            return Move(TERMINATED, "the instance of this imported worker is gone; LCM does not launch it")
        case Known(instance):
            return WithdrawLaunchIntent(
                f"instance {instance.id} is {instance.state}: {instance.state_reason or 'no reason'}"
            )
        case Absent(proof) if worker.may_have_instance and not worker.has_unresolved_launch:
            return WithdrawLaunchIntent(f"instance {worker.instance.id} is gone: {proof}")
        case Absent() if wanted is DesiredStatus.TERMINATED:
            return Move(TERMINATED, "deleted before anything was launched")
        case Unknown(reason) if not worker.has_unresolved_launch or wanted is DesiredStatus.TERMINATED:
            # Without an id the launch may still take effect: only a proven absence ends the search.
            return Wait(f"searching for an instance: {reason}")
    if worker.launch.intent is None and wanted is DesiredStatus.STOPPED:
        return Nothing()  # stopped before anything was launched
    if situation.is_overdue:
        return Move(FAILED, situation.overdue_reason())
    if worker.launch.intent is None and worker.launch.unattended >= MAX_UNATTENDED_LAUNCHES:
        return Move(FAILED, f"{MAX_UNATTENDED_LAUNCHES} launches in a row failed: {worker.status_reason}")
    return Launch()
