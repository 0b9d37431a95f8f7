"""STARTING: start the instance, then wait until it has an address."""

from lcm.domain.lifecycle import FAILED, RUNNING, STOPPING, TERMINATING, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import (
    Decision,
    Move,
    Situation,
    StartInstance,
    Wait,
    report_drift,
)


def decide(situation: Situation) -> Decision:
    worker, observation = situation.worker, situation.observation
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "deleted while it was starting")
    if worker.desired_status is DesiredStatus.STOPPED:
        return Move(STOPPING, "stopped while it was starting")
    match observation:
        case Known(instance) if instance.state == "running" and instance.has_address:
            return Move(RUNNING, "EC2 reports running with an address", instance=instance)
        case Known(instance) if instance.state == "stopped":
            return StartInstance(instance.id)
        case Known(instance) if instance.is_gone:
            return Move(FAILED, f"the instance was terminated: {instance.state_reason or instance.state}")
        case Known(instance) if instance.state not in {"pending", "running", "stopping"}:
            return report_drift(instance, "")
        case Absent(proof):
            return Move(FAILED, f"the instance is gone: {proof}")
    if situation.is_overdue:
        return Move(FAILED, situation.overdue_reason())
    if isinstance(observation, Unknown):
        return Wait(observation.reason)
    return situation.wait_for_ec2(observation.value.state)
