"""TERMINATING: deregister the license, then request termination until EC2 reports terminated."""

from lcm.domain.license import RELEASE_PATIENCE, LicenseOperation
from lcm.domain.lifecycle import TERMINATED, TERMINATING
from lcm.domain.observation import Absent, Known, Unknown
from lcm.domain.worker import Worker
from lcm.worker_controller.decisions import (
    Decision,
    FreeLicense,
    Move,
    Situation,
    TerminateInstance,
    Wait,
)


def _is_license_open(worker: Worker) -> bool:
    """Whether CML is still to be asked for its license, or to give it back."""
    is_asked = worker.license.pending_operation is LicenseOperation.DEREGISTER
    return is_asked or worker.license.may_be_held


def decide(situation: Situation) -> Decision:
    match situation.observation:
        case Absent(proof):
            return Move(TERMINATED, f"there is no instance: {proof}")
        case Known(instance) if instance.state == "terminated":
            return Move(TERMINATED, "EC2 reports terminated")
        case Known(instance) if instance.state == "shutting-down":
            return situation.wait_for_ec2(instance.state)
        case Known(instance) if situation.worker.instance.id is None:
            # Found by its client token: record its id before anything is done to it.
            return Move(TERMINATING, f"instance {instance.id} exists", instance=instance)
        case Known(instance) if _is_license_open(situation.worker):
            is_down = instance.state in ("stopping", "stopped")  # no CML answers there any more
            waited = situation.now - situation.worker.status_since
            return FreeLicense(is_late=is_down or waited >= RELEASE_PATIENCE)
        case Known(instance):
            return TerminateInstance(instance.id)
        case Unknown(reason):
            return Wait(reason)
