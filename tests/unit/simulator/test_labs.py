"""Labs and nodes as a state machine: no server, no socket, time is a number."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from lcm.simulator.cml.lab import ALLOWED, Lab, Node, State
from lcm.simulator.cml.labs import Labs
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.pace import Pace

ADA = "11111111-1111-4111-8111-111111111111"


class World:
    """Labs on a clock of our own, and what they told."""

    def __init__(self, *, speed: float = 1.0, seed: int = 1) -> None:
        self.now = 1000.0
        self.shown: list[dict[str, Any]] = []
        self.recorded: list[tuple[str, float]] = []
        self.labs = Labs(
            pace=Pace(seed=seed, speed=speed),
            rng=random.Random(seed),
            emit=self.shown.append,
            record=lambda category, at, data: self.recorded.append((category, at)),
        )

    def pair(self, definition: str = "alpine") -> tuple[Lab, Node, Node]:
        """A lab of two linked nodes."""
        lab = self.labs.create(self.now, title="pair", owner_id=ADA)
        a, b = (self.labs.add_node(lab, self.now, label=n, definition_id=definition) for n in "ab")
        self.labs.connect(
            self.labs.add_interface(a, self.now), self.labs.add_interface(b, self.now), self.now
        )
        self.shown.clear()
        return lab, a, b

    def start(self, lab: Lab) -> None:
        self.labs.start(lab, self.now, ADA)

    def stop(self, lab: Lab) -> None:
        self.labs.stop(lab, self.now, ADA)

    def settle(self) -> None:
        """Let everything that is on its way arrive."""
        while self.step():
            pass

    def step(self) -> bool:
        """Let the next thing arrive; False if nothing is on its way."""
        if (at := self.labs.next_change_at()) is None:
            return False
        self.now = at
        self.labs.advance(at)
        return True

    def states_of(self, element_id: str) -> list[str]:
        return [e["event"] for e in self.shown if e.get("element_id") == element_id]

    def lab_states(self) -> list[str]:
        return [
            e["data"]["state"] for e in self.shown if e["event_type"] == "lab_event" and e["event"] == "state"
        ]


@pytest.fixture
def world() -> World:
    return World()


def test_a_started_node_is_queued_then_started_then_booted(world: World) -> None:
    lab, a, _ = world.pair()
    world.start(lab)
    assert (a.state, lab.has_converged) == (State.QUEUED, False)
    world.settle()
    assert (a.state, lab.has_converged) == (State.BOOTED, True)
    assert world.states_of(a.id) == ["QUEUED", "STARTED", "BOOTED"]


def test_a_stopped_node_keeps_its_disk_until_it_is_wiped(world: World) -> None:
    lab, a, _ = world.pair()
    world.start(lab)
    world.settle()
    world.stop(lab)
    assert not lab.has_converged
    world.settle()
    world.labs.wipe(lab, world.now, ADA)
    assert world.states_of(a.id) == ["QUEUED", "STARTED", "BOOTED", "STOPPED", "DEFINED_ON_CORE"]


def test_a_lab_is_what_its_nodes_are_and_tells_only_changes(world: World) -> None:
    lab, a, b = world.pair()
    world.labs.start_node(a, world.now, ADA)
    world.settle()
    world.labs.start_node(b, world.now, ADA)
    world.labs.stop_node(a, world.now, ADA)
    world.settle()
    assert world.lab_states() == ["STARTED"], "one of its nodes still runs"
    world.stop(lab)
    world.settle()
    world.labs.wipe(lab, world.now, ADA)
    assert world.lab_states() == ["STARTED", "STOPPED", "DEFINED_ON_CORE"]


def test_a_link_is_up_only_while_both_of_its_nodes_are(world: World) -> None:
    lab, a, b = world.pair()
    (link,) = lab.links.values()
    world.labs.start_node(a, world.now, ADA)
    world.settle()
    assert (link.a.state, link.b.state, link.state) == ("STARTED", "DEFINED_ON_CORE", "STOPPED")
    world.labs.start_node(b, world.now, ADA)
    world.settle()
    assert link.state is State.STARTED
    world.labs.cut(link, world.now, is_cut=True)
    assert (link.state, link.a.state) == ("STOPPED", "STARTED")


def test_a_node_can_be_stopped_on_its_way_up_and_then_never_arrives(world: World) -> None:
    lab, a, b = world.pair()
    world.start(lab)
    world.stop(lab)
    world.settle()
    assert {a.state, b.state} == {State.STOPPED}
    assert "BOOTED" not in world.states_of(a.id)


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_speed_divides_the_time_a_boot_takes(speed: float) -> None:
    world = World(speed=speed)
    lab, a, _ = world.pair("iosv")
    world.start(lab)
    world.settle()
    assert 0.8 * 60 / speed <= a.since - 1000.0 <= 1.2 * 62 / speed


def test_what_is_due_happens_at_its_own_moment_however_late_somebody_looks() -> None:
    punctual, late = World(), World()
    for world in (punctual, late):
        world.start(world.pair()[0])
    punctual.settle()
    late.labs.advance(10_000.0)
    assert late.shown == punctual.shown
    assert late.recorded == punctual.recorded


def test_the_same_seed_gives_the_same_labs_with_the_same_ids() -> None:
    def story(seed: int) -> list[dict[str, Any]]:
        world = World(seed=seed)
        world.start(world.pair()[0])
        world.settle()
        return world.shown

    assert story(7) == story(7)
    assert story(7) != story(8)


def test_telemetry_keeps_what_people_did_and_what_nodes_did(world: World) -> None:
    lab, _, _ = world.pair()
    world.start(lab)
    world.settle()
    world.stop(lab)
    world.settle()
    world.labs.wipe(lab, world.now, ADA)
    assert Counter(category for category, _ in world.recorded) == {
        "start_lab": 1,
        "queue_node": 2,
        "start_node": 2,
        "boot_node": 2,
        "stop_lab": 1,
        "stop_node": 2,
        "wipe_node": 2,
    }


def test_starting_what_runs_and_stopping_what_rests_changes_nothing(world: World) -> None:
    lab, _, _ = world.pair()
    world.stop(lab)
    world.labs.wipe(lab, world.now, ADA)
    assert world.shown == []
    world.start(lab)
    world.settle()
    world.shown.clear()
    world.start(lab)
    world.settle()
    assert world.shown == []


def test_a_running_lab_is_neither_wiped_nor_deleted_and_a_stopped_one_not_deleted(world: World) -> None:
    lab, a, _ = world.pair()
    world.start(lab)
    world.settle()
    refused: tuple[Callable[[], None], ...] = (
        lambda: world.labs.wipe(lab, world.now, ADA),
        lambda: world.labs.delete(lab),
        lambda: world.labs.remove_node(a, world.now),
    )
    for act in refused:
        with pytest.raises(Refused) as refusal:
            act()
        assert refusal.value.code == 400
    world.stop(lab)
    world.settle()
    with pytest.raises(Refused):
        world.labs.delete(lab)


def test_removing_a_node_takes_its_ports_and_links_with_it(world: World) -> None:
    lab, a, b = world.pair()
    world.labs.remove_node(a, world.now)
    assert (list(lab.nodes), list(lab.links)) == ([b.id], [])
    assert [interface.node for interface in lab.interfaces.values()] == [b]
    assert [(e["event"], e["element_type"]) for e in world.shown] == [
        ("deleted", "link"),
        ("deleted", "interface"),
        ("deleted", "node"),
    ]


def test_a_host_that_loses_power_leaves_its_nodes_stopped_and_nothing_on_its_way(world: World) -> None:
    lab, a, b = world.pair()
    world.labs.start_node(a, world.now, ADA)
    world.settle()
    world.labs.start_node(b, world.now, ADA)
    world.labs.lose_power(world.now)
    assert {a.state, b.state} == {State.STOPPED}
    assert (lab.has_converged, world.labs.next_change_at()) == (True, None)


def test_keys_exist_only_while_the_machine_runs(world: World) -> None:
    lab, a, _ = world.pair()

    def keys() -> int:
        return len(a.console_keys) + (a.vnc_key is not None)

    world.start(lab)
    counts = [keys()]
    world.settle()
    counts.append(keys())
    world.stop(lab)
    world.settle()
    assert [*counts, keys()] == [0, 2, 0]


def test_no_walk_through_a_lab_makes_a_transition_that_is_not_in_the_table() -> None:
    """Start, stop and wipe in every order of five; the machine itself asserts each transition."""
    seen: set[tuple[str, str]] = set()
    for walk in product(("start", "stop", "wipe", "step", "settle"), repeat=5):
        world = World()
        lab, a, _ = world.pair("server")
        before = a.state
        for act in walk:
            if act in {"step", "settle"}:
                getattr(world, act)()
            else:
                with suppress(Refused):  # a running lab is not wiped
                    getattr(world.labs, act)(lab, world.now, ADA)
        for state in world.states_of(a.id):
            seen.add((before, state))
            before = State(state)
    assert seen == {(source.value, target.value) for source, target in ALLOWED}
