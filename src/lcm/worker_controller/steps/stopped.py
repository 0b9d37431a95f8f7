"""STOPPED: wait until the desired status changes, or the instance is started outside LCM."""

from typing import Final

from lcm.domain.lifecycle import PENDING, STARTING, TERMINATED, TERMINATING, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import Decision, Move, Nothing, Situation, Wait, report_drift

START: Final = Move(STARTING, "desired status is running")


def decide(situation: Situation) -> Decision:
    worker, observation = situation.worker, situation.observation
    match worker.desired_status, observation:
        case DesiredStatus.TERMINATED, _:
            return Move(TERMINATING, "desired status is terminated")
        case _, Known(instance) if instance.is_gone:
            return report_drift(instance, f"{instance.state} outside LCM")
        case DesiredStatus.RUNNING, Absent(proof) if worker.imported:
            return Move(TERMINATED, f"the instance of this imported worker is gone: {proof}")
        case DesiredStatus.RUNNING, Absent(proof):
            return Move(PENDING, f"desired status is running, there is no instance: {proof}")
        case DesiredStatus.RUNNING, Unknown(reason):
            return Wait(reason)
        case DesiredStatus.RUNNING, _:
            return START
        case DesiredStatus.STOPPED, Known(instance) if instance.state == "pending":
            return Move(STARTING, "started outside LCM", observed=True, drift="instance_pending")
        case DesiredStatus.STOPPED, Known(instance) if instance.state not in {"stopped", "stopping"}:
            return report_drift(instance, f"{instance.state} outside LCM")
        case _:
            return Nothing()
