"""TERMINATING: deregister the license, then request termination until EC2 reports terminated."""

from datetime import timedelta
from typing import Final

from lcm.domain.lifecycle import TERMINATED, TERMINATING
from lcm.domain.observation import Absent, Known, Unknown
from lcm.worker_controller.decisions import (
    Decision,
    FreeLicense,
    Move,
    Situation,
    TerminateInstance,
    Wait,
)

LICENSE_PATIENCE: Final = timedelta(seconds=120)
"""An unreachable CML must not keep an instance that costs money."""


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
        case Known() if situation.worker.license.may_be_held:
            waited = situation.now - situation.worker.status_since
            return FreeLicense(is_late=waited >= LICENSE_PATIENCE)
        case Known(instance):
            return TerminateInstance(instance.id)
        case Unknown(reason):
            return Wait(reason)
