"""The lifecycle of EC2 instances: allowed state transitions, their durations, and public addresses.

Knows nothing of moto or HTTP. State advances lazily: every public method first settles the transitions
that have become due since. Callers hold the lock of `AwsState`.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from lcm.simulator.aws.addresses import PublicAddresses
from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.pace import Delays, Pace

PENDING: Final = "pending"
RUNNING: Final = "running"
STOPPING: Final = "stopping"
STOPPED: Final = "stopped"
SHUTTING_DOWN: Final = "shutting-down"
TERMINATED: Final = "terminated"
FORGOTTEN: Final = "forgotten"
"""Not an EC2 state: the moment at which EC2 stops describing a terminated instance."""

ALIVE: Final = frozenset({PENDING, RUNNING, STOPPING, STOPPED})
GONE: Final = frozenset({SHUTTING_DOWN, TERMINATED})


class Transition(NamedTuple):
    """What a call does: the states it starts from, those in which it changes nothing, and where it leads."""

    participle: str
    from_states: Set[str]
    unchanged_states: Set[str]
    via: str
    to: str


# fmt: off
TRANSITIONS: Final = {
    #                                     from       unchanged in         via            to
    "start":     Transition("started",    {STOPPED}, {PENDING, RUNNING},  PENDING,       RUNNING),
    "stop":      Transition("stopped",    {RUNNING}, {STOPPING, STOPPED}, STOPPING,      STOPPED),
    "terminate": Transition("terminated", ALIVE,     GONE,                SHUTTING_DOWN, TERMINATED),
}
# fmt: on


@dataclass(order=True, frozen=True)
class ScheduledState:
    """A state that an instance reaches by itself at a known time."""

    at: float
    serial: int
    state: str = field(compare=False)
    instance_id: str = field(compare=False)


@dataclass(frozen=True)
class TransitionFault:
    """How a transition ends instead of reaching its state."""

    failure_code: str | None
    """EC2's reason code for terminating the instance; None: the transition stalls."""


class Target(NamedTuple):
    """The state an instance is on its way to, and the mean duration."""

    state: str
    mean_seconds: float
    delay_name: str


@dataclass
class SimulatedInstance:
    """One instance. `ordinal` counts launches: the seed names the nth instance, because ids are random."""

    id: str
    region: str
    ordinal: int
    state: str = PENDING
    generation: int = 1
    running_since: float | None = None
    public_ip: str | None = None
    has_public_address: bool = True
    """Whether it gets a public address whenever it runs."""
    scheduled: ScheduledState | None = None
    stalled: Target | None = None
    """Where a stalled transition leads once it is resumed."""
    failure_code: str | None = None
    """EC2's own reason for terminating it."""


class StateChange(NamedTuple):
    """What a call did to one instance."""

    instance: SimulatedInstance
    previous: str


class InstanceView(Protocol):
    """What clients of the wire protocol are shown."""

    def show(self, instance: SimulatedInstance) -> None:
        """Show the instance's new state or address."""

    def drop(self, instance: SimulatedInstance) -> None:
        """Stop showing the instance."""


class SimulatedInstances:
    """Every instance of every region. `version` differs whenever one of them has changed."""

    def __init__(self, *, pace: Pace, delays: Delays, view: InstanceView, now: Callable[[], float]) -> None:
        self._pace = pace
        self.delays = delays
        """Of transitions that are yet to begin."""
        self._view = view
        self._now = now
        self._by_id: dict[str, SimulatedInstance] = {}
        self._schedule_heap: list[ScheduledState] = []
        self._serial = 0
        self._launched = 0
        self._addresses = PublicAddresses()
        self._fault: TransitionFault | None = None
        self.version = 0

    def all(self) -> list[SimulatedInstance]:
        """Every instance that is still described, oldest first."""
        self.settle()
        return list(self._by_id.values())

    def mark_changed(self) -> None:
        """Advance the version after a change of something shown with the instances, for example a tag."""
        self.version += 1

    def launch(self, instance_id: str, region: str, *, has_public_address: bool = True) -> SimulatedInstance:
        """Add a pending instance."""
        self._launched += 1
        instance = SimulatedInstance(
            id=instance_id,
            region=region,
            ordinal=self._launched,
            has_public_address=has_public_address,
        )
        self._by_id[instance_id] = instance
        self._set_target(instance, Target(RUNNING, self.delays.launch_seconds, "launch"))
        self._show(instance)
        return instance

    def backdate(self, instance_id: str, seconds: float) -> SimulatedInstance:
        """Make a pending instance one that has been running for that long."""
        instance = self._by_id[instance_id]
        if instance.scheduled is not None:
            started = ScheduledState(self._now() - seconds, instance.scheduled.serial, RUNNING, instance.id)
            self._reach(instance, started)
        return instance

    @contextmanager
    def with_fault(self, fault: TransitionFault) -> Iterator[None]:
        """Apply the fault to every transition that begins inside the block."""
        self._fault = fault
        try:
            yield
        finally:
            self._fault = None

    def resume_stalled(self) -> None:
        """Let every stalled transition proceed."""
        for instance in self._by_id.values():
            if instance.stalled is not None:
                self._set_target(instance, instance.stalled)

    def change_state(self, name: str, region: str, instance_ids: Sequence[str]) -> list[StateChange]:
        """Start, stop or terminate all of them, or refuse and change none."""
        transition = TRANSITIONS[name]
        instances = self.find(region, instance_ids)
        for instance in instances:
            if instance.state not in transition.from_states | transition.unchanged_states:
                raise _wrong_state(instance, transition.participle)
        changes = [StateChange(instance, instance.state) for instance in instances]
        for instance in instances:
            if instance.state in transition.from_states:
                self._begin(instance, name, transition)
        return changes

    def reboot(self, region: str, instance_ids: Sequence[str]) -> None:
        """Restart the operating systems of running instances; addresses stay."""
        instances = self.find(region, instance_ids)
        for instance in instances:
            if instance.state != RUNNING:
                raise _wrong_state(instance, "rebooted")
        for instance in instances:
            instance.generation += 1
            instance.running_since = self._now()
            self._show(instance)

    def forget(self, region: str, instance_id: str) -> None:
        """Remove an instance as if it had never existed."""
        (instance,) = self.find(region, [instance_id])
        self._drop(instance)

    def find(self, region: str, instance_ids: Sequence[str]) -> list[SimulatedInstance]:
        """These instances of a region; refuses if any of them is unknown there."""
        self.settle()
        known = [self._by_id.get(instance_id) for instance_id in instance_ids]
        found = [instance for instance in known if instance is not None and instance.region == region]
        if len(found) != len(instance_ids):
            missing = set(instance_ids) - {instance.id for instance in found}
            noun, verb = ("ID", "does") if len(missing) == 1 else ("IDs", "do")
            raise Ec2Error(
                "InvalidInstanceID.NotFound",
                f"The instance {noun} '{', '.join(sorted(missing))}' {verb} not exist",
            )
        return found

    def running(self, instance_id: str) -> SimulatedInstance | None:
        """This instance, if it is running."""
        self.settle()
        instance = self._by_id.get(instance_id)
        return instance if instance is not None and instance.state == RUNNING else None

    def is_gone(self, instance_id: str) -> bool:
        """Whether it can never run again."""
        self.settle()
        instance = self._by_id.get(instance_id)
        return instance is None or instance.state in GONE

    def settle(self) -> None:
        """Apply every transition that is due by now."""
        while self._schedule_heap and self._schedule_heap[0].at <= self._now():
            scheduled = heapq.heappop(self._schedule_heap)
            instance = self._by_id.get(scheduled.instance_id)
            if instance is not None and instance.scheduled is scheduled:
                self._reach(instance, scheduled)

    def seconds_to_next_change(self) -> float | None:
        """Seconds until the next scheduled transition; None if none is scheduled."""
        return max(0.0, self._schedule_heap[0].at - self._now()) if self._schedule_heap else None

    def _begin(self, instance: SimulatedInstance, name: str, transition: Transition) -> None:
        instance.state = transition.via
        instance.running_since = None
        self._release_address(instance)
        if name == "start":
            instance.generation += 1
        mean_seconds = {
            "start": self.delays.start_seconds,
            "stop": self.delays.stop_seconds,
            "terminate": self.delays.terminate_seconds,
        }[name]
        self._set_target(instance, Target(transition.to, mean_seconds, name))
        self._show(instance)

    def _set_target(self, instance: SimulatedInstance, target: Target) -> None:
        """Begin a transition, which reaches its target unless a fault applies."""
        instance.stalled = None
        if self._fault is None:
            self._schedule(instance, target)
        elif self._fault.failure_code is None:
            instance.scheduled, instance.stalled = None, target
        else:
            instance.failure_code = self._fault.failure_code
            self._schedule(instance, target._replace(state=TERMINATED))

    def _reach(self, instance: SimulatedInstance, scheduled: ScheduledState) -> None:
        instance.scheduled = None
        if scheduled.state == FORGOTTEN:
            self._drop(instance)
            return
        instance.state = scheduled.state
        if scheduled.state == RUNNING:
            instance.running_since = scheduled.at
            if instance.has_public_address:
                instance.public_ip = self._addresses.allocate()
        if scheduled.state == TERMINATED:
            self._schedule(instance, Target(FORGOTTEN, self.delays.forget_seconds, "forget"))
        self._show(instance)

    def _schedule(self, instance: SimulatedInstance, target: Target) -> None:
        seconds = self._pace.seconds(
            target.mean_seconds, target.delay_name, instance.ordinal, instance.generation
        )
        self._serial += 1
        instance.scheduled = ScheduledState(self._now() + seconds, self._serial, target.state, instance.id)
        heapq.heappush(self._schedule_heap, instance.scheduled)

    def _drop(self, instance: SimulatedInstance) -> None:
        self._release_address(instance)
        del self._by_id[instance.id]
        self._view.drop(instance)
        self.mark_changed()

    def _release_address(self, instance: SimulatedInstance) -> None:
        if instance.public_ip is not None:
            self._addresses.release(instance.public_ip)
            instance.public_ip = None

    def _show(self, instance: SimulatedInstance) -> None:
        self._view.show(instance)
        self.mark_changed()


def _wrong_state(instance: SimulatedInstance, participle: str) -> Ec2Error:
    return Ec2Error(
        "IncorrectInstanceState",
        f"The instance '{instance.id}' is not in a state from which it can be {participle}.",
    )
