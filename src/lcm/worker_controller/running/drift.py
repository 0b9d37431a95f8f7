"""Step 2: drift, changes of the instance outside LCM."""

from lcm.domain.launch import MAX_UNATTENDED_LAUNCHES
from lcm.domain.lifecycle import FAILED, PENDING, STARTING, TERMINATED
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.decisions import Decision, Maintain, Move, Wait, report_drift


def decide(worker: Worker, observation: Observation[Instance]) -> Decision:
    """Maintain the worker if its instance runs; otherwise report or repair the drift."""
    match observation:
        case Known(instance) if instance.state == "running":
            return Maintain(instance)
        case Known(instance) if instance.state == "pending":
            return Move(STARTING, "restarted outside LCM", observed=True, drift="instance_pending")
        case Known(instance):
            return report_drift(instance, f"{instance.state} outside LCM")
        case Absent(proof) if worker.imported:
            return Move(
                TERMINATED,
                f"the instance of this imported worker is gone: {proof}",
                observed=True,
                drift="instance_missing",
            )
        case Absent(proof) if worker.launch.unattended >= MAX_UNATTENDED_LAUNCHES:
            return Move(FAILED, f"the instance is gone again: {proof}", drift="instance_missing")
        case Absent(proof):
            return Move(PENDING, f"the instance is gone: {proof}", drift="instance_missing")
        case Unknown(reason):
            return Wait(reason)


def has_new_address(worker: Worker, instance: Instance) -> bool:
    """Whether the addresses of the instance differ from the record."""
    return (worker.instance.public_ip, worker.instance.private_ip) != (
        instance.public_ip,
        instance.private_ip,
    )
