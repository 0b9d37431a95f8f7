"""The lifecycle of simulated EC2 instances, in virtual time."""

import pytest

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.instances import (
    GONE,
    TRANSITIONS,
    SimulatedInstance,
    SimulatedInstances,
    TransitionFault,
)
from lcm.simulator.pace import Delays, Pace

REGION = "us-east-1"
LATER = 10.0
"""Seconds after which every transition is over and nothing is forgotten yet."""


class Shown:
    """The states that clients were shown of each instance, and the instances no longer shown."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.dropped: list[str] = []

    def show(self, instance: SimulatedInstance) -> None:
        self.states.setdefault(instance.id, []).append(instance.state)

    def drop(self, instance: SimulatedInstance) -> None:
        self.dropped.append(instance.id)


class Ec2:
    """Instances on a clock that stands still until a test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.shown = Shown()
        self.instances = SimulatedInstances(
            pace=Pace(seed=1, speed=1.0), delays=Delays(), view=self.shown, now=lambda: self.now
        )
        self._launched = 0

    def launch(self) -> SimulatedInstance:
        self._launched += 1
        return self.instances.launch(f"i-{self._launched:017x}", REGION)

    def change_state(self, name: str, instance: SimulatedInstance) -> None:
        self.instances.change_state(name, REGION, [instance.id])

    def pass_time(self, seconds: float = LATER) -> None:
        self.now += seconds
        self.instances.settle()

    def instance_in(self, state: str) -> SimulatedInstance:
        """An instance brought into a state by the calls that lead there."""
        instance = self.launch()
        if state in {"stopping", "stopped", "running"}:
            self.pass_time()
        if state in {"stopping", "stopped"}:
            self.change_state("stop", instance)
        if state in GONE:
            self.change_state("terminate", instance)
        if state in {"stopped", "terminated"}:
            self.pass_time()
        assert instance.state == state
        return instance


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
    ("state", "call", "expected"),
    [(row[0], call, row[n]) for row in EXPECTED for n, call in enumerate(TRANSITIONS, start=1)],
)
def test_each_call_does_in_each_state_what_ec2_does(ec2: Ec2, state: str, call: str, expected: str) -> None:
    instance = ec2.instance_in(state)
    if expected == "refused":
        with pytest.raises(Ec2Error, match="IncorrectInstanceState"):
            ec2.change_state(call, instance)
        assert instance.state == state
    else:
        ec2.change_state(call, instance)
        assert instance.state == (state if expected == "no change" else expected)


def test_a_launch_takes_about_three_seconds(ec2: Ec2) -> None:
    instance = ec2.launch()
    ec2.pass_time(2.3)
    assert instance.state == "pending"
    ec2.pass_time(1.4)
    assert instance.state == "running"


def test_an_instance_runs_since_the_moment_it_was_due_not_since_it_was_observed(ec2: Ec2) -> None:
    instance = ec2.launch()
    ec2.pass_time(60)
    assert instance.running_since is not None
    assert instance.running_since <= 1003.6


def test_the_same_seed_gives_the_same_times() -> None:
    def running_since() -> list[float | None]:
        ec2 = Ec2()
        instances = [ec2.launch() for _ in range(5)]
        ec2.pass_time()
        return [instance.running_since for instance in instances]

    assert running_since() == running_since()
    assert len(set(running_since())) == 5


def test_a_pending_instance_that_is_terminated_never_runs(ec2: Ec2) -> None:
    instance = ec2.launch()
    ec2.change_state("terminate", instance)
    ec2.pass_time()
    assert ec2.shown.states[instance.id] == ["pending", "shutting-down", "terminated"]


def test_a_stalled_transition_ends_when_it_is_resumed(ec2: Ec2) -> None:
    instance = ec2.instance_in("running")
    with ec2.instances.with_fault(TransitionFault(failure_code=None)):
        ec2.change_state("stop", instance)
    ec2.pass_time()
    assert instance.state == "stopping"
    ec2.instances.resume_stalled()
    ec2.pass_time()
    assert instance.state == "stopped"


def test_a_stalled_instance_can_be_terminated(ec2: Ec2) -> None:
    with ec2.instances.with_fault(TransitionFault(failure_code=None)):
        instance = ec2.launch()
    ec2.change_state("terminate", instance)
    ec2.pass_time()
    assert instance.state == "terminated"
    assert instance.failure_code is None


def test_a_launch_that_ec2_gives_up_ends_with_the_reason(ec2: Ec2) -> None:
    with ec2.instances.with_fault(TransitionFault("Server.InternalError")):
        instance = ec2.launch()
    assert instance.state == "pending"
    ec2.pass_time()
    assert (instance.state, instance.failure_code) == ("terminated", "Server.InternalError")


def test_each_start_is_a_generation_and_brings_another_public_address(ec2: Ec2) -> None:
    instance = ec2.instance_in("running")
    first = instance.public_ip
    ec2.change_state("stop", instance)
    assert instance.public_ip is None
    ec2.pass_time()
    ec2.change_state("start", instance)
    ec2.pass_time()
    assert instance.public_ip not in {None, first}
    assert instance.generation == 2


def test_no_two_instances_share_a_public_address(ec2: Ec2) -> None:
    instances = [ec2.launch() for _ in range(300)]
    ec2.pass_time()
    assert len({instance.public_ip for instance in instances}) == 300


def test_a_reboot_keeps_the_address_and_begins_a_new_generation(ec2: Ec2) -> None:
    instance = ec2.instance_in("running")
    address = instance.public_ip
    ec2.instances.reboot(REGION, [instance.id])
    assert (instance.public_ip, instance.generation, instance.running_since) == (address, 2, ec2.now)


def test_a_terminated_instance_is_forgotten_after_about_an_hour(ec2: Ec2) -> None:
    instance = ec2.instance_in("terminated")
    ec2.pass_time(2500)
    assert instance in ec2.instances.all()
    ec2.pass_time(2500)
    assert ec2.instances.all() == []
    assert ec2.shown.dropped == [instance.id]


def test_a_call_that_names_an_unknown_instance_touches_none(ec2: Ec2) -> None:
    instance = ec2.instance_in("running")
    with pytest.raises(Ec2Error, match=r"InvalidInstanceID\.NotFound.*i-f00"):
        ec2.instances.change_state("stop", REGION, [instance.id, "i-f00"])
    assert instance.state == "running"


def test_the_version_differs_after_every_change_and_only_then(ec2: Ec2) -> None:
    versions = [ec2.instances.version]
    instance = ec2.launch()
    versions.append(ec2.instances.version)
    ec2.pass_time()
    versions.append(ec2.instances.version)
    ec2.change_state("stop", instance)
    versions.append(ec2.instances.version)
    assert len(set(versions)) == len(versions)
    ec2.instances.settle()
    assert ec2.instances.version == versions[-1]
