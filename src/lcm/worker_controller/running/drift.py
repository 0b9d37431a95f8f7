"""Step 2: what happened to the machine without LCM."""

from lcm.domain.launch import MAX_UNATTENDED_LAUNCHES
from lcm.domain.lifecycle import FAILED, PENDING, STARTING, TERMINATED
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.decisions import Decision, Maintain, Move, Wait, report_drift


def decide(worker: Worker, seen: Observation[Instance]) -> Decision:
    """Maintain the worker if its machine runs; otherwise say what became of it."""
    match seen:
        case Known(instance) if instance.state == "running":
            return Maintain(instance)
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


def has_moved(worker: Worker, instance: Instance) -> bool:
    """Whether the machine is reached elsewhere than the record says."""
    return (worker.public_ip, worker.private_ip) != (instance.public_ip, instance.private_ip)
