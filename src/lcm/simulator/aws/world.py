"""All that the threads of the AWS process share, and the one lock that serialises it."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from lcm.simulator.aws.calls import CallLog
from lcm.simulator.aws.faults import Faults
from lcm.simulator.aws.machines import Machine, Machines
from lcm.simulator.listing import InstanceListing, SimulatedInstance


class Describes(Protocol):
    """Whoever can say what a machine knows about itself."""

    def describe(self, machine: Machine) -> SimulatedInstance: ...


@dataclass
class World:
    """The simulated AWS. `changed` is the lock over machines and moto, and wakes those who wait for news."""

    machines: Machines
    instances: Describes
    faults: Faults = field(default_factory=Faults)
    calls: CallLog = field(default_factory=CallLog)
    changed: threading.Condition = field(default_factory=threading.Condition)
    simulation: Any = None
    """What the process that runs the whole simulation published about it; None until then."""

    def listing(self, *, after: int | None = None, wait_seconds: float = 0.0) -> InstanceListing:
        """Every instance; waits for a version other than `after`, but never longer than asked."""
        deadline = time.monotonic() + wait_seconds
        with self.changed:
            self.machines.settle()
            while self.machines.version == after and (left := deadline - time.monotonic()) > 0:
                next_change = self.machines.seconds_to_next_change()
                self.changed.wait(left if next_change is None else min(left, next_change))
                self.machines.settle()
            return InstanceListing(
                version=self.machines.version,
                instances=[self.instances.describe(machine) for machine in self.machines.all()],
            )
