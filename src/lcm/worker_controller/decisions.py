"""What a step can decide. At most one of these is carried out before the world is looked at again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import UNKNOWN, WorkerStatus, status_of_ec2_state
from lcm.domain.observation import Observation, Unknown
from lcm.domain.worker import Instance, Worker


@dataclass(frozen=True)
class Move:
    """Record another status, then go on with the step of that status."""

    to: WorkerStatus
    reason: str
    observed: bool = False
    drift: str | None = None
    """The kind of drift this repairs or reports, for the metrics."""
    instance: Instance | None = None
    """The instance to record along with it."""


@dataclass(frozen=True)
class Launch:
    """Ask EC2 for the instance: repeat the promised launch, or promise one first."""


@dataclass(frozen=True)
class WithdrawLaunchIntent:
    """The promised instance is gone for good: forget the promise, so that a new one can be made."""

    reason: str


@dataclass(frozen=True)
class StartInstance:
    """Ask EC2 to start the instance."""

    instance_id: InstanceId


@dataclass(frozen=True)
class StopInstance:
    """Ask EC2 to stop the instance."""

    instance_id: InstanceId


@dataclass(frozen=True)
class TerminateInstance:
    """Ask EC2 to terminate the instance."""

    instance_id: InstanceId


@dataclass(frozen=True)
class FreeLicense:
    """Give the license back before the machine goes; if that takes too long, record that it is owed."""

    is_late: bool


@dataclass(frozen=True)
class Maintain:
    """All is as wanted: look after the running worker."""

    instance: Instance


@dataclass(frozen=True)
class Wait:
    """EC2 is on its way, or cannot tell: look again soon."""

    reason: str
    is_alarm: bool = False
    """It takes longer than it ever should; people are told."""


@dataclass(frozen=True)
class Nothing:
    """Converged, or nothing LCM may do."""

    reason: str


Decision = (
    Move
    | Launch
    | WithdrawLaunchIntent
    | StartInstance
    | StopInstance
    | TerminateInstance
    | FreeLicense
    | Maintain
    | Wait
    | Nothing
)


STUCK_AFTER: Final = timedelta(minutes=15)
STUCK_AFTER_ON_METAL: Final = timedelta(minutes=40)
"""Bare metal takes ten to twenty minutes to come or go, and that is normal."""


@dataclass(frozen=True)
class Situation:
    """All that a step may look at."""

    worker: Worker
    seen: Observation[Instance]
    now: datetime
    provisioning_timeout: timedelta

    @property
    def is_overdue(self) -> bool:
        """Whether the way from PENDING to RUNNING has taken too long."""
        since = self.worker.pending_since
        return since is not None and self.now - since > self.provisioning_timeout

    @property
    def no_answer(self) -> str | None:
        """Why EC2 could not be looked at: then nothing is asked of it, and it is asked less often."""
        return self.seen.reason if isinstance(self.seen, Unknown) and self.seen.is_failure else None

    def wait_for_ec2(self, state: str) -> Wait:
        """EC2 is on its way; once that takes too long people are told, and nothing is forced."""
        is_metal = "metal" in (self.worker.instance_type or "")
        limit = STUCK_AFTER_ON_METAL if is_metal else STUCK_AFTER
        if self.now - self.worker.status_since <= limit:
            return Wait(f"EC2 reports {state}")
        minutes = limit.total_seconds() / 60
        return Wait(
            f"EC2 reports {state} for more than {minutes:g} minutes; look at it in the AWS console",
            is_alarm=True,
        )

    def overdue_reason(self) -> str:
        minutes = self.provisioning_timeout.total_seconds() / 60
        last_word = self.worker.status_reason or "no reason known"
        left_behind = self.worker.ec2_instance_id
        cost = (
            f"; instance {left_behind} still exists and costs money: retry or delete" if left_behind else ""
        )
        return f"not running after {minutes:g} minutes (last: {last_word}){cost}"


def report_drift(instance: Instance, reason: str) -> Move:
    """EC2 did something by itself: tell the truth and touch nothing."""
    status = status_of_ec2_state(instance.state)
    if status is UNKNOWN:
        reason = f"EC2 reports {instance.state!r}"
    return Move(status, reason, observed=True, drift=f"instance_{instance.state.replace('-', '_')}")
