"""STOPPED: rest until people want something else, or somebody else started it."""

from lcm.domain.lifecycle import PENDING, STARTING, TERMINATED, TERMINATING, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import Decision, Move, Nothing, Situation, Wait, report_drift


def decide(situation: Situation) -> Decision:
    worker, seen = situation.worker, situation.seen
    match worker.desired_status, seen:
        case DesiredStatus.TERMINATED, _:
            return Move(TERMINATING, "people want it deleted")
        case _, Known(instance) if instance.is_gone:
            return report_drift(instance, f"{instance.state} outside LCM")
        case DesiredStatus.RUNNING, Absent(proof) if worker.imported:
            return Move(TERMINATED, f"it was imported and its instance is gone: {proof}")
        case DesiredStatus.RUNNING, Absent(proof):
            return Move(PENDING, f"people want it running and there is no instance: {proof}")
        case DesiredStatus.RUNNING, Unknown(reason):
            return Wait(reason)
        case DesiredStatus.RUNNING, _:
            return Move(STARTING, "people want it running")
        case DesiredStatus.STOPPED, Known(instance) if instance.state == "pending":
            return Move(STARTING, "started outside LCM", observed=True, drift="instance_pending")
        case DesiredStatus.STOPPED, Known(instance) if instance.state not in {"stopped", "stopping"}:
            return report_drift(instance, f"{instance.state} outside LCM")
        case _:
            return Nothing("stopped, as wanted")
