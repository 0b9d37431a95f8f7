"""The life of simulated EC2 instances, in virtual time."""

import pytest

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.machines import GONE, MOVES, Fate, Machine, Machines
from lcm.simulator.pace import Delays, Pace

REGION = "us-east-1"
LATER = 10.0
"""Seconds after which every transition is over and nothing is forgotten yet."""


class Shown:
    """What clients were shown of each machine, and which ones they are no longer shown."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.dropped: list[str] = []

    def show(self, machine: Machine) -> None:
        self.states.setdefault(machine.id, []).append(machine.state)

    def drop(self, machine: Machine) -> None:
        self.dropped.append(machine.id)


class Ec2:
    """Machines whose clock stands still unless told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.shown = Shown()
        self.machines = Machines(
            pace=Pace(seed=1, speed=1.0), delays=Delays(), view=self.shown, now=lambda: self.now
        )
        self._launched = 0

    def launch(self) -> Machine:
        self._launched += 1
        return self.machines.launch(f"i-{self._launched:017x}", REGION)

    def move(self, name: str, machine: Machine) -> None:
        self.machines.move(name, REGION, [machine.id])

    def pass_time(self, seconds: float = LATER) -> None:
        self.now += seconds
        self.machines.settle()

    def machine_in(self, state: str) -> Machine:
        """A machine brought into a state by the calls that lead there."""
        machine = self.launch()
        if state in {"stopping", "stopped", "running"}:
            self.pass_time()
        if state in {"stopping", "stopped"}:
            self.move("stop", machine)
        if state in GONE:
            self.move("terminate", machine)
        if state in {"stopped", "terminated"}:
            self.pass_time()
        assert machine.state == state
        return machine


@pytest.fixture
def ec2() -> Ec2:
    return Ec2()


# fmt: off
EXPECTED = [
    # in              start         stop          terminate
    ("pending",       "no change",  "refused",    "shutting-down"),
    ("running",       "no change",  "stopping",   "shutting-down"),
    ("stopping",      "refused",    "no change",  "shutting-down"),
    ("stopped",       "pending",    "no change",  "shutting-down"),
    ("shutting-down", "refused",    "refused",    "no change"),
    ("terminated",    "refused",    "refused",    "no change"),
]
# fmt: on


@pytest.mark.parametrize(
    ("state", "move", "expected"),
    [(row[0], move, row[n]) for row in EXPECTED for n, move in enumerate(MOVES, start=1)],
)
def test_each_move_does_in_each_state_what_ec2_does(ec2: Ec2, state: str, move: str, expected: str) -> None:
    machine = ec2.machine_in(state)
    if expected == "refused":
        with pytest.raises(Ec2Error, match="IncorrectInstanceState"):
            ec2.move(move, machine)
        assert machine.state == state
    else:
        ec2.move(move, machine)
        assert machine.state == (state if expected == "no change" else expected)


def test_a_launch_takes_about_three_seconds(ec2: Ec2) -> None:
    machine = ec2.launch()
    ec2.pass_time(2.3)
    assert machine.state == "pending"
    ec2.pass_time(1.4)
    assert machine.state == "running"


def test_a_machine_runs_since_the_moment_it_was_due_not_since_somebody_looked(ec2: Ec2) -> None:
    machine = ec2.launch()
    ec2.pass_time(60)
    assert machine.running_since is not None
    assert machine.running_since <= 1003.6


def test_the_same_seed_gives_the_same_times() -> None:
    def running_since() -> list[float | None]:
        ec2 = Ec2()
        machines = [ec2.launch() for _ in range(5)]
        ec2.pass_time()
        return [machine.running_since for machine in machines]

    assert running_since() == running_since()
    assert len(set(running_since())) == 5


def test_a_pending_machine_that_is_terminated_never_runs(ec2: Ec2) -> None:
    machine = ec2.launch()
    ec2.move("terminate", machine)
    ec2.pass_time()
    assert ec2.shown.states[machine.id] == ["pending", "shutting-down", "terminated"]


def test_a_move_that_was_told_to_stall_ends_when_the_machines_go_on(ec2: Ec2) -> None:
    machine = ec2.machine_in("running")
    with ec2.machines.under(Fate(given_up=None)):
        ec2.move("stop", machine)
    ec2.pass_time()
    assert machine.state == "stopping"
    ec2.machines.go_on()
    ec2.pass_time()
    assert machine.state == "stopped"


def test_a_stalled_machine_can_be_terminated(ec2: Ec2) -> None:
    with ec2.machines.under(Fate(given_up=None)):
        machine = ec2.launch()
    ec2.move("terminate", machine)
    ec2.pass_time()
    assert machine.state == "terminated"
    assert machine.given_up is None


def test_a_launch_that_is_given_up_ends_with_the_reason(ec2: Ec2) -> None:
    with ec2.machines.under(Fate("Server.InternalError")):
        machine = ec2.launch()
    assert machine.state == "pending"
    ec2.pass_time()
    assert (machine.state, machine.given_up) == ("terminated", "Server.InternalError")


def test_each_start_is_a_generation_and_brings_another_public_address(ec2: Ec2) -> None:
    machine = ec2.machine_in("running")
    first = machine.public_ip
    ec2.move("stop", machine)
    assert machine.public_ip is None
    ec2.pass_time()
    ec2.move("start", machine)
    ec2.pass_time()
    assert machine.public_ip not in {None, first}
    assert machine.generation == 2


def test_no_two_machines_share_a_public_address(ec2: Ec2) -> None:
    machines = [ec2.launch() for _ in range(300)]
    ec2.pass_time()
    assert len({machine.public_ip for machine in machines}) == 300


def test_a_reboot_keeps_the_address_and_begins_a_new_generation(ec2: Ec2) -> None:
    machine = ec2.machine_in("running")
    address = machine.public_ip
    ec2.machines.reboot(REGION, [machine.id])
    assert (machine.public_ip, machine.generation, machine.running_since) == (address, 2, ec2.now)


def test_a_terminated_machine_is_forgotten_after_about_an_hour(ec2: Ec2) -> None:
    machine = ec2.machine_in("terminated")
    ec2.pass_time(2500)
    assert machine in ec2.machines.all()
    ec2.pass_time(2500)
    assert ec2.machines.all() == []
    assert ec2.shown.dropped == [machine.id]


def test_a_call_that_names_an_unknown_machine_touches_none(ec2: Ec2) -> None:
    machine = ec2.machine_in("running")
    with pytest.raises(Ec2Error, match=r"InvalidInstanceID\.NotFound.*i-f00"):
        ec2.machines.move("stop", REGION, [machine.id, "i-f00"])
    assert machine.state == "running"


def test_the_version_differs_after_every_change_and_only_then(ec2: Ec2) -> None:
    versions = [ec2.machines.version]
    machine = ec2.launch()
    versions.append(ec2.machines.version)
    ec2.pass_time()
    versions.append(ec2.machines.version)
    ec2.move("stop", machine)
    versions.append(ec2.machines.version)
    assert len(set(versions)) == len(versions)
    ec2.machines.settle()
    assert ec2.machines.version == versions[-1]
