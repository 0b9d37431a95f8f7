"""PROVISIONING: EC2 accepted the launch; wait for the instance to run."""

from lcm.domain.lifecycle import FAILED, PENDING, STARTING, TERMINATING, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import Decision, Move, Situation, Wait, report_drift


def decide(situation: Situation) -> Decision:
    worker, observation = situation.worker, situation.observation
    if worker.instance.id is None:
        return Move(FAILED, "no instance is recorded for this worker; retry to launch one")
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "deleted while it was being launched")
    match observation:
        case Known(instance) if instance.state == "running":
            return Move(STARTING, "EC2 reports running", instance=instance)
        case Known(instance) if instance.was_terminated_by_ec2 and not worker.imported:
            return Move(PENDING, f"EC2 terminated the instance: {instance.state_reason}")
        case Known(instance) if instance.is_gone:
            return Move(FAILED, f"the instance was terminated: {instance.state_reason or instance.state}")
        case Known(instance) if instance.state != "pending":
            return report_drift(instance, "stopped outside LCM while it was being launched")
        case Absent(proof):
            return Move(FAILED, f"the instance is gone: {proof}")
    if situation.is_overdue:
        return Move(FAILED, situation.overdue_reason())
    return Wait(observation.reason if isinstance(observation, Unknown) else "EC2 reports pending")
