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


class LabBench:
    """Labs whose time a test advances, with the events and telemetry they emitted."""

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
        """Apply every state change that is due or scheduled."""
        while self.step():
            pass

    def step(self) -> bool:
        """Apply the next scheduled state change; False if there is none."""
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
def bench() -> LabBench:
    return LabBench()


def test_a_started_node_is_queued_then_started_then_booted(bench: LabBench) -> None:
    lab, a, _ = bench.pair()
    bench.start(lab)
    assert (a.state, lab.has_converged) == (State.QUEUED, False)
    bench.settle()
    assert (a.state, lab.has_converged) == (State.BOOTED, True)
    assert bench.states_of(a.id) == ["QUEUED", "STARTED", "BOOTED"]


def test_a_stopped_node_keeps_its_disk_until_it_is_wiped(bench: LabBench) -> None:
    lab, a, _ = bench.pair()
    bench.start(lab)
    bench.settle()
    bench.stop(lab)
    assert not lab.has_converged
    bench.settle()
    bench.labs.wipe(lab, bench.now, ADA)
    assert bench.states_of(a.id) == ["QUEUED", "STARTED", "BOOTED", "STOPPED", "DEFINED_ON_CORE"]


def test_a_lab_has_the_state_of_its_nodes_and_publishes_only_changes(bench: LabBench) -> None:
    lab, a, b = bench.pair()
    bench.labs.start_node(a, bench.now, ADA)
    bench.settle()
    bench.labs.start_node(b, bench.now, ADA)
    bench.labs.stop_node(a, bench.now, ADA)
    bench.settle()
    assert bench.lab_states() == ["STARTED"], "one of its nodes still runs"
    bench.stop(lab)
    bench.settle()
    bench.labs.wipe(lab, bench.now, ADA)
    assert bench.lab_states() == ["STARTED", "STOPPED", "DEFINED_ON_CORE"]


def test_a_link_is_up_only_while_both_of_its_nodes_are(bench: LabBench) -> None:
    lab, a, b = bench.pair()
    (link,) = lab.links.values()
    bench.labs.start_node(a, bench.now, ADA)
    bench.settle()
    assert (link.a.state, link.b.state, link.state) == ("STARTED", "DEFINED_ON_CORE", "STOPPED")
    bench.labs.start_node(b, bench.now, ADA)
    bench.settle()
    assert link.state is State.STARTED
    bench.labs.cut(link, bench.now, is_cut=True)
    assert (link.state, link.a.state) == ("STOPPED", "STARTED")


def test_a_node_can_be_stopped_on_its_way_up_and_then_never_arrives(bench: LabBench) -> None:
    lab, a, b = bench.pair()
    bench.start(lab)
    bench.stop(lab)
    bench.settle()
    assert {a.state, b.state} == {State.STOPPED}
    assert "BOOTED" not in bench.states_of(a.id)


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_speed_divides_the_time_a_boot_takes(speed: float) -> None:
    bench = LabBench(speed=speed)
    lab, a, _ = bench.pair("iosv")
    bench.start(lab)
    bench.settle()
    assert 0.8 * 60 / speed <= a.since - 1000.0 <= 1.2 * 62 / speed


def test_a_due_change_happens_at_its_own_time_however_late_it_is_observed() -> None:
    punctual, late = LabBench(), LabBench()
    for bench in (punctual, late):
        bench.start(bench.pair()[0])
    punctual.settle()
    late.labs.advance(10_000.0)
    assert late.shown == punctual.shown
    assert late.recorded == punctual.recorded


def test_the_same_seed_gives_the_same_labs_with_the_same_ids() -> None:
    def story(seed: int) -> list[dict[str, Any]]:
        bench = LabBench(seed=seed)
        bench.start(bench.pair()[0])
        bench.settle()
        return bench.shown

    assert story(7) == story(7)
    assert story(7) != story(8)


def test_telemetry_keeps_what_people_did_and_what_nodes_did(bench: LabBench) -> None:
    lab, _, _ = bench.pair()
    bench.start(lab)
    bench.settle()
    bench.stop(lab)
    bench.settle()
    bench.labs.wipe(lab, bench.now, ADA)
    assert Counter(category for category, _ in bench.recorded) == {
        "start_lab": 1,
        "queue_node": 2,
        "start_node": 2,
        "boot_node": 2,
        "stop_lab": 1,
        "stop_node": 2,
        "wipe_node": 2,
    }


def test_starting_what_runs_and_stopping_what_rests_changes_nothing(bench: LabBench) -> None:
    lab, _, _ = bench.pair()
    bench.stop(lab)
    bench.labs.wipe(lab, bench.now, ADA)
    assert bench.shown == []
    bench.start(lab)
    bench.settle()
    bench.shown.clear()
    bench.start(lab)
    bench.settle()
    assert bench.shown == []


def test_a_running_lab_is_neither_wiped_nor_deleted_and_a_stopped_one_not_deleted(bench: LabBench) -> None:
    lab, a, _ = bench.pair()
    bench.start(lab)
    bench.settle()
    refused: tuple[Callable[[], None], ...] = (
        lambda: bench.labs.wipe(lab, bench.now, ADA),
        lambda: bench.labs.delete(lab),
        lambda: bench.labs.remove_node(a, bench.now),
    )
    for act in refused:
        with pytest.raises(Refused) as refusal:
            act()
        assert refusal.value.code == 400
    bench.stop(lab)
    bench.settle()
    with pytest.raises(Refused):
        bench.labs.delete(lab)


def test_removing_a_node_takes_its_ports_and_links_with_it(bench: LabBench) -> None:
    lab, a, b = bench.pair()
    bench.labs.remove_node(a, bench.now)
    assert (list(lab.nodes), list(lab.links)) == ([b.id], [])
    assert [interface.node for interface in lab.interfaces.values()] == [b]
    assert [(e["event"], e["element_type"]) for e in bench.shown] == [
        ("deleted", "link"),
        ("deleted", "interface"),
        ("deleted", "node"),
    ]


def test_a_host_that_loses_power_leaves_its_nodes_stopped_and_nothing_on_its_way(bench: LabBench) -> None:
    lab, a, b = bench.pair()
    bench.labs.start_node(a, bench.now, ADA)
    bench.settle()
    bench.labs.start_node(b, bench.now, ADA)
    bench.labs.lose_power(bench.now)
    assert {a.state, b.state} == {State.STOPPED}
    assert (lab.has_converged, bench.labs.next_change_at()) == (True, None)


def test_keys_exist_only_while_the_node_runs(bench: LabBench) -> None:
    lab, a, _ = bench.pair()

    def keys() -> int:
        return len(a.console_keys) + (a.vnc_key is not None)

    bench.start(lab)
    counts = [keys()]
    bench.settle()
    counts.append(keys())
    bench.stop(lab)
    bench.settle()
    assert [*counts, keys()] == [0, 2, 0]


def test_no_walk_through_a_lab_makes_a_transition_that_is_not_in_the_table() -> None:
    """Start, stop and wipe in every order of five; the state machine asserts each transition."""
    seen: set[tuple[str, str]] = set()
    for walk in product(("start", "stop", "wipe", "step", "settle"), repeat=5):
        bench = LabBench()
        lab, a, _ = bench.pair("server")
        before = a.state
        for act in walk:
            if act in {"step", "settle"}:
                getattr(bench, act)()
            else:
                with suppress(Refused):  # a running lab is not wiped
                    getattr(bench.labs, act)(lab, bench.now, ADA)
        for state in bench.states_of(a.id):
            seen.add((before, state))
            before = State(state)
    assert seen == {(source.value, target.value) for source, target in ALLOWED}
