"""The state that the threads of the AWS process share, and the one lock that serialises access to it."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from lcm.simulator.aws.calls import CallLog
from lcm.simulator.aws.faults import Faults
from lcm.simulator.aws.instances import SimulatedInstance, SimulatedInstances
from lcm.simulator.listing import InstanceListing, ListedInstance


class InstanceDescriber(Protocol):
    """Describes an instance as its operating system would know it."""

    def describe(self, instance: SimulatedInstance) -> ListedInstance: ...


@dataclass
class Account:
    """What `PATCH /_lcm/account` changes of the account."""

    vcpu_quota: float = 100_000
    """As Service Quotas answers it; launches are not counted against it."""
    clock_ahead_seconds: float = 0.0
    """Of the time in AWS's answers."""


@dataclass
class AwsState:
    """The simulated AWS. `changed` is the lock over instances and moto, and wakes the waiting listings."""

    instances: SimulatedInstances
    describer: InstanceDescriber
    faults: Faults = field(default_factory=Faults)
    calls: CallLog = field(default_factory=CallLog)
    account: Account = field(default_factory=Account)
    changed: threading.Condition = field(default_factory=threading.Condition)
    simulation: Any = None
    """What the parent process published about the whole simulation; None until then."""

    def listing(self, *, after: int | None = None, wait_seconds: float = 0.0) -> InstanceListing:
        """Every instance; waits for a version other than `after`, but never longer than asked."""
        deadline = time.monotonic() + wait_seconds
        with self.changed:
            self.instances.settle()
            while self.instances.version == after and (left := deadline - time.monotonic()) > 0:
                next_change = self.instances.seconds_to_next_change()
                self.changed.wait(left if next_change is None else min(left, next_change))
                self.instances.settle()
            return InstanceListing(
                version=self.instances.version,
                instances=[self.describer.describe(instance) for instance in self.instances.all()],
            )
