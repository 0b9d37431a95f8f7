"""The decisions of a step. At most one is carried out before EC2 is observed again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import UNKNOWN, WorkerStatus, status_of_ec2_state
from lcm.domain.observation import Observation, Unknown
from lcm.domain.worker import Instance, Worker


@dataclass(frozen=True)
class Move:
    """Record another status, then continue with the step of that status."""

    to: WorkerStatus
    reason: str
    observed: bool = False
    drift: str | None = None
    """The kind of drift that this repairs or reports, for the metrics."""
    instance: Instance | None = None
    """The instance to record with the status."""


@dataclass(frozen=True)
class Launch:
    """Launch the instance: repeat the intended launch, or record a launch intent first."""


@dataclass(frozen=True)
class WithdrawLaunchIntent:
    """Withdraw the intent of an instance that is terminated, so that a new one can be recorded."""

    reason: str


@dataclass(frozen=True)
class StartInstance:
    """Request the start of the instance."""

    instance_id: InstanceId


@dataclass(frozen=True)
class StopInstance:
    """Request the stop of the instance."""

    instance_id: InstanceId


@dataclass(frozen=True)
class TerminateInstance:
    """Request the termination of the instance."""

    instance_id: InstanceId


@dataclass(frozen=True)
class FreeLicense:
    """Deregister the license before the instance is terminated; record a debt if that takes too long."""

    is_late: bool


@dataclass(frozen=True)
class Maintain:
    """The instance runs as desired: maintain the running worker."""

    instance: Instance


@dataclass(frozen=True)
class Wait:
    """EC2 is in transition, or could not be observed: observe again soon."""

    reason: str
    is_alarm: bool = False
    """The transition exceeds its limit: it is shown in the status reason."""


@dataclass(frozen=True)
class Nothing:
    """Converged, or nothing that LCM may do."""


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
"""Bare metal normally takes ten to twenty minutes to start or stop."""


@dataclass(frozen=True)
class Situation:
    """The input of a step."""

    worker: Worker
    observation: Observation[Instance]
    now: datetime
    provisioning_timeout: timedelta
    """Of workers whose template sets none."""

    @property
    def is_overdue(self) -> bool:
        """Whether the way from PENDING to RUNNING exceeded its timeout."""
        since = self.worker.pending_since
        return since is not None and self.now - since > self._provisioning_timeout

    @property
    def _provisioning_timeout(self) -> timedelta:
        minutes = self.worker.provisioning_timeout_minutes
        return self.provisioning_timeout if minutes is None else timedelta(minutes=minutes)

    @property
    def observation_failure(self) -> str | None:
        """Why EC2 could not be observed: then nothing is changed, and the pass is repeated with backoff."""
        if isinstance(self.observation, Unknown) and self.observation.is_failure:
            return self.observation.reason
        return None

    def wait_for_ec2(self, state: str) -> Wait:
        """Wait for a transition; once it exceeds its limit, raise an alarm and force nothing."""
        is_metal = "metal" in (self.worker.instance.type or "")
        limit = STUCK_AFTER_ON_METAL if is_metal else STUCK_AFTER
        if self.now - self.worker.status_since <= limit:
            return Wait(f"EC2 reports {state}")
        minutes = limit.total_seconds() / 60
        return Wait(
            f"EC2 reports {state} for more than {minutes:g} minutes; check it in the AWS console",
            is_alarm=True,
        )

    def overdue_reason(self) -> str:
        minutes = self._provisioning_timeout.total_seconds() / 60
        last_reason = self.worker.status_reason or "no reason known"
        instance_id = self.worker.instance.id
        cost = (
            f"; instance {instance_id} still exists and costs money: retry or delete" if instance_id else ""
        )
        return f"not running after {minutes:g} minutes (last: {last_reason}){cost}"


def report_drift(instance: Instance, reason: str) -> Move:
    """Report a change at EC2 outside LCM and change nothing there."""
    status = status_of_ec2_state(instance.state)
    if status is UNKNOWN:
        reason = f"EC2 reports {instance.state!r}"
    return Move(status, reason, observed=True, drift=f"instance_{instance.state.replace('-', '_')}")
