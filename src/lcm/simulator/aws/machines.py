"""The life of EC2 instances: which moves are allowed, how long they take, which address they have.

Knows nothing of moto or HTTP. Time passes only when somebody looks: every entrance settles first
whatever has become due since. Callers hold the world's lock.
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
"""Not an EC2 state: the moment a terminated instance is no longer described."""

ALIVE: Final = frozenset({PENDING, RUNNING, STOPPING, STOPPED})
GONE: Final = frozenset({SHUTTING_DOWN, TERMINATED})


class Move(NamedTuple):
    """What a call does: where it may begin, where it changes nothing, and what it leads to."""

    done: str
    begins: Set[str]
    idle: Set[str]
    via: str
    to: str


# fmt: off
MOVES: Final = {
    #                               begins in  idle in              via            to
    "start":     Move("started",    {STOPPED}, {PENDING, RUNNING},  PENDING,       RUNNING),
    "stop":      Move("stopped",    {RUNNING}, {STOPPING, STOPPED}, STOPPING,      STOPPED),
    "terminate": Move("terminated", ALIVE,     GONE,                SHUTTING_DOWN, TERMINATED),
}
# fmt: on


@dataclass(order=True, frozen=True)
class Plan:
    """A state that a machine reaches by itself."""

    at: float
    serial: int
    state: str = field(compare=False)
    machine_id: str = field(compare=False)


@dataclass(frozen=True)
class Fate:
    """What becomes of a move instead of its end."""

    given_up: str | None
    """EC2's reason for ending the machine; None: it never gets on."""


class Way(NamedTuple):
    """Where a machine is going, and how long that takes on average."""

    to: str
    mean: float
    why: str


@dataclass
class Machine:
    """One instance. `ordinal` counts launches: the seed speaks about the nth machine, not about an id."""

    id: str
    region: str
    ordinal: int
    state: str = PENDING
    generation: int = 1
    running_since: float | None = None
    public_ip: str | None = None
    plan: Plan | None = None
    stalled: Way | None = None
    """Where it would be going if it got on."""
    given_up: str | None = None
    """EC2's own reason for its end."""


class Change(NamedTuple):
    """What a move did to one machine."""

    machine: Machine
    previous: str


class MachineView(Protocol):
    """Whoever shows machines to clients."""

    def show(self, machine: Machine) -> None:
        """The machine's state or address is another one now."""

    def drop(self, machine: Machine) -> None:
        """The machine is not to be shown any more."""


class Machines:
    """Every instance of every region. `version` differs whenever one of them has changed."""

    def __init__(self, *, pace: Pace, delays: Delays, view: MachineView, now: Callable[[], float]) -> None:
        self._pace = pace
        self._delays = delays
        self._view = view
        self._now = now
        self._by_id: dict[str, Machine] = {}
        self._plans: list[Plan] = []
        self._serial = 0
        self._launched = 0
        self._addresses = PublicAddresses()
        self._fate: Fate | None = None
        self.version = 0

    def all(self) -> list[Machine]:
        """Every machine that is still described, oldest first."""
        self.settle()
        return list(self._by_id.values())

    def touch(self) -> None:
        """Something that is shown with the machines has changed (a tag, say)."""
        self.version += 1

    def launch(self, machine_id: str, region: str) -> Machine:
        """A new machine, on its way to running."""
        self._launched += 1
        machine = Machine(id=machine_id, region=region, ordinal=self._launched)
        self._by_id[machine_id] = machine
        self._set_out(machine, Way(RUNNING, self._delays.launch_seconds, "launch"))
        self._show(machine)
        return machine

    def age(self, machine_id: str, seconds: float) -> Machine:
        """A machine that is on its way to running has been there for that long already."""
        machine = self._by_id[machine_id]
        if machine.plan is not None:
            self._arrive(machine, Plan(self._now() - seconds, machine.plan.serial, RUNNING, machine.id))
        return machine

    @contextmanager
    def under(self, fate: Fate) -> Iterator[None]:
        """Whatever begins meanwhile ends like that."""
        self._fate = fate
        try:
            yield
        finally:
            self._fate = None

    def go_on(self) -> None:
        """Machines that did not get on do so now."""
        for machine in self._by_id.values():
            if machine.stalled is not None:
                self._set_out(machine, machine.stalled)

    def move(self, name: str, region: str, machine_ids: Sequence[str]) -> list[Change]:
        """Start, stop or terminate all of them, or refuse and touch none."""
        move = MOVES[name]
        machines = self.find(region, machine_ids)
        for machine in machines:
            if machine.state not in move.begins | move.idle:
                raise _wrong_state(machine, move.done)
        changes = [Change(machine, machine.state) for machine in machines]
        for machine in machines:
            if machine.state in move.begins:
                self._begin(machine, name, move)
        return changes

    def reboot(self, region: str, machine_ids: Sequence[str]) -> None:
        """Start the operating systems of running machines anew; addresses stay."""
        machines = self.find(region, machine_ids)
        for machine in machines:
            if machine.state != RUNNING:
                raise _wrong_state(machine, "rebooted")
        for machine in machines:
            machine.generation += 1
            machine.running_since = self._now()
            self._show(machine)

    def forget(self, region: str, machine_id: str) -> None:
        """Drop a machine as if it had never been."""
        (machine,) = self.find(region, [machine_id])
        self._drop(machine)

    def find(self, region: str, machine_ids: Sequence[str]) -> list[Machine]:
        """These machines of a region; refuses if any of them is unknown there."""
        self.settle()
        known = [self._by_id.get(machine_id) for machine_id in machine_ids]
        found = [machine for machine in known if machine is not None and machine.region == region]
        if len(found) != len(machine_ids):
            missing = set(machine_ids) - {machine.id for machine in found}
            noun, verb = ("ID", "does") if len(missing) == 1 else ("IDs", "do")
            raise Ec2Error(
                "InvalidInstanceID.NotFound",
                f"The instance {noun} '{', '.join(sorted(missing))}' {verb} not exist",
            )
        return found

    def running(self, machine_id: str) -> Machine | None:
        """This machine, if it runs."""
        self.settle()
        machine = self._by_id.get(machine_id)
        return machine if machine is not None and machine.state == RUNNING else None

    def is_gone(self, machine_id: str) -> bool:
        """Whether it can never run again."""
        self.settle()
        machine = self._by_id.get(machine_id)
        return machine is None or machine.state in GONE

    def settle(self) -> None:
        """Let everything happen that is due by now."""
        while self._plans and self._plans[0].at <= self._now():
            plan = heapq.heappop(self._plans)
            machine = self._by_id.get(plan.machine_id)
            if machine is not None and machine.plan is plan:
                self._arrive(machine, plan)

    def seconds_to_next_change(self) -> float | None:
        """How long nothing will happen by itself; None if nothing ever will."""
        return max(0.0, self._plans[0].at - self._now()) if self._plans else None

    def _begin(self, machine: Machine, name: str, move: Move) -> None:
        machine.state = move.via
        machine.running_since = None
        self._release_address(machine)
        if name == "start":
            machine.generation += 1
        mean = {
            "start": self._delays.start_seconds,
            "stop": self._delays.stop_seconds,
            "terminate": self._delays.terminate_seconds,
        }[name]
        self._set_out(machine, Way(move.to, mean, name))
        self._show(machine)

    def _set_out(self, machine: Machine, way: Way) -> None:
        """Begin a move, which ends where it leads to unless its fate is another one."""
        machine.stalled = None
        if self._fate is None:
            self._schedule(machine, way)
        elif self._fate.given_up is None:
            machine.plan, machine.stalled = None, way
        else:
            machine.given_up = self._fate.given_up
            self._schedule(machine, way._replace(to=TERMINATED))

    def _arrive(self, machine: Machine, plan: Plan) -> None:
        machine.plan = None
        if plan.state == FORGOTTEN:
            self._drop(machine)
            return
        machine.state = plan.state
        if plan.state == RUNNING:
            machine.running_since = plan.at
            machine.public_ip = self._addresses.take()
        if plan.state == TERMINATED:
            self._schedule(machine, Way(FORGOTTEN, self._delays.forget_seconds, "forget"))
        self._show(machine)

    def _schedule(self, machine: Machine, way: Way) -> None:
        seconds = self._pace.seconds(way.mean, way.why, machine.ordinal, machine.generation)
        self._serial += 1
        machine.plan = Plan(self._now() + seconds, self._serial, way.to, machine.id)
        heapq.heappush(self._plans, machine.plan)

    def _drop(self, machine: Machine) -> None:
        self._release_address(machine)
        del self._by_id[machine.id]
        self._view.drop(machine)
        self.touch()

    def _release_address(self, machine: Machine) -> None:
        if machine.public_ip is not None:
            self._addresses.give_back(machine.public_ip)
            machine.public_ip = None

    def _show(self, machine: Machine) -> None:
        self._view.show(machine)
        self.touch()


def _wrong_state(machine: Machine, done: str) -> Ec2Error:
    return Ec2Error(
        "IncorrectInstanceState",
        f"The instance '{machine.id}' is not in a state from which it can be {done}.",
    )
