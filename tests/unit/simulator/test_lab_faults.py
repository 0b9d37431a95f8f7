"""Faults of labs and of requests about them: a server without sockets, in virtual time."""

from typing import Any

import msgspec
import pytest

from lcm.simulator.cml import faults
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.api.routing import Answer, Query
from lcm.simulator.cml.lab import Lab, State
from lcm.simulator.cml.lab_faults import SLOW_STOP_SECONDS, NeverBoots, RefuseLab, SlowStop, StopsAfterBoot
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.server import ServerOptions
from lcm.simulator.cml.site import LATE_IMPORT_SECONDS, Site
from support.labs_over_tls import ADMIN, simulated_cml
from support.virtual_time import VirtualClock

clock = VirtualClock()
BEGIN = 1000.0

EMPTY = b"lab: {title: t, version: 0.3.0}\nnodes: []\nlinks: []"


class Bench:
    """A lab of two nodes on a server, whose time a test advances."""

    def __init__(self, *, definition: str = "alpine") -> None:
        self.cml = simulated_cml(running_since=BEGIN)
        self.labs = self.cml.labs
        self.lab = self.labs.create(BEGIN, title="pair", owner_id=ADMIN_ID)
        self.a, self.b = (
            self.labs.add_node(self.lab, BEGIN, label=n, definition_id=definition) for n in "ab"
        )
        self.now = BEGIN

    def start(self) -> None:
        self.labs.start(self.lab, self.now, ADMIN_ID)

    def stop(self) -> None:
        self.labs.stop(self.lab, self.now, ADMIN_ID)

    def settle(self) -> None:
        while (at := self.labs.next_change_at()) is not None:
            self.now = at
            self.labs.advance(at)

    @property
    def states(self) -> tuple[State, State]:
        return self.a.state, self.b.state


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Nodes


@pytest.mark.parametrize("state", ["QUEUED", "STARTED"])
def test_a_node_that_never_boots_keeps_its_lab_from_converging(bench: Bench, state: Any) -> None:
    bench.labs.faults.add(NeverBoots(node="a", state=state))
    bench.start()
    bench.settle()
    assert bench.states == (state, State.BOOTED)
    assert not bench.lab.has_converged
    assert bench.lab.state is State.STARTED
    bench.stop()
    bench.settle()
    assert bench.states == (State.STOPPED, State.STOPPED)
    assert bench.lab.has_converged


def test_a_counted_fault_spares_the_next_start(bench: Bench) -> None:
    bench.labs.faults.add(NeverBoots(node="alpine", count=1))
    for expected in (State.STARTED, State.BOOTED):
        bench.start()
        bench.settle()
        assert bench.states == (expected, State.BOOTED)
        bench.stop()
        bench.settle()


def test_a_node_boots_and_then_stops_by_itself(bench: Bench) -> None:
    bench.labs.faults.add(StopsAfterBoot(node=bench.a.id, seconds=30))
    bench.start()
    bench.settle()
    assert bench.states == (State.STOPPED, State.BOOTED)
    assert bench.a.times["BOOTED"] >= 0.8 * 30


def test_a_slow_stop_ends_later(bench: Bench) -> None:
    bench.labs.faults.add(SlowStop(node="a", seconds=100))
    bench.start()
    bench.settle()
    began = bench.now
    bench.stop()
    bench.settle()
    assert bench.a.since - began >= 80
    assert bench.b.since - began <= 2


def test_a_stop_that_never_ends_needs_another_stop(bench: Bench) -> None:
    bench.start()
    bench.settle()
    bench.labs.faults.add(SlowStop(node="a", count=2))
    for _ in range(2):
        bench.stop()
        bench.settle()
        assert bench.states == (State.BOOTED, State.STOPPED)
        assert not bench.lab.has_converged
    bench.labs.stop_node(bench.a, bench.now, ADMIN_ID)
    bench.settle()
    assert bench.lab.has_converged


def test_a_loss_of_power_ends_every_fault_of_a_node(bench: Bench) -> None:
    bench.labs.faults.add(NeverBoots(count=2))
    bench.start()
    bench.settle()
    bench.labs.lose_power(bench.now)
    assert bench.lab.has_converged
    bench.start()
    bench.settle()
    assert bench.states == (State.BOOTED, State.BOOTED)


def test_the_seed_decides_which_starts_fail() -> None:
    def fates() -> list[str]:
        bench = Bench()
        bench.cml.apply_options(ServerOptions(people=False, node_trouble=0.5), bench.now)
        found = []
        for _ in range(20):
            bench.start()
            bench.settle()
            found += [str(node.state) for node in (bench.a, bench.b)]
            bench.stop()
            bench.settle()
        return found

    first = fates()
    assert set(first) == {"STARTED", "BOOTED", "STOPPED"}
    assert first == fates()


# Refusals


def do(bench: Bench, action: str) -> None:
    match action:
        case "start":
            bench.start()
        case "stop":
            bench.stop()
        case "wipe":
            bench.labs.wipe(bench.lab, bench.now, ADMIN_ID)
        case "delete":
            bench.labs.delete(bench.lab)


@pytest.mark.parametrize("action", ["start", "stop", "wipe", "delete"])
def test_a_refused_request_changes_nothing_and_says_why(bench: Bench, action: Any) -> None:
    bench.labs.faults.add(RefuseLab(action=action, count=1, description="not today"))
    with pytest.raises(Refused, match="not today"):
        do(bench, action)
    assert bench.labs.all() == [bench.lab]
    assert bench.states == (State.DEFINED_ON_CORE, State.DEFINED_ON_CORE)
    do(bench, action)


@pytest.mark.parametrize(("reason", "word"), [("license", "license"), ("resources", "memory")])
def test_a_start_is_refused_for_a_license_or_for_resources(bench: Bench, reason: Any, word: str) -> None:
    bench.labs.faults.add(RefuseLab(action="start", reason=reason))
    for start in (bench.start, lambda: bench.labs.start_node(bench.a, bench.now, ADMIN_ID)):
        with pytest.raises(Refused, match=word):
            start()


def test_the_seed_decides_which_requests_are_refused_and_which_nodes_stop_slowly() -> None:
    def outcomes() -> list[str]:
        bench = Bench()
        bench.cml.apply_options(ServerOptions(people=False, request_trouble=0.4), bench.now)
        found = []
        for _ in range(40):
            for action in ("start", "stop"):
                began = bench.now
                try:
                    do(bench, action)
                    found.append(f"{action} done")
                except Refused as refused:
                    found.append(f"{action}: {refused.description}")
                bench.settle()
            found.append("slow" if bench.a.since - began > SLOW_STOP_SECONDS / 2 else "quick")
        return found

    first = outcomes()
    refusals = {f"start: {RefuseLab.WORDS[reason]}" for reason in ("license", "resources")}
    assert {*refusals, "start done", "stop done", "stop: The request was refused.", "slow"} <= set(first)
    assert first == outcomes()


# Requests


class SiteBench:
    """A server behind its faults."""

    def __init__(self) -> None:
        self.site = Site(
            simulated_cml(running_since=clock.now().timestamp()),
            directory=None,
            clock=lambda: clock.now().timestamp(),
            settled=lambda _: None,
        )
        login = self.ask("POST", "authenticate", msgspec.json.encode(ADMIN)).answer
        assert isinstance(login, Answer)
        self.token = msgspec.json.decode(login.body, type=str)

    def ask(self, method: str, path: str, body: bytes = b"") -> Any:
        token = getattr(self, "token", "")
        query = Query(method=method, path=f"/api/v0/{path}", authorization=f"Bearer {token}", body=body)
        return self.site.respond(query)

    @property
    def labs(self) -> list[Lab]:
        return self.site.server.labs.all()


async def test_an_import_can_be_applied_and_its_answer_cut() -> None:
    bench = SiteBench()
    bench.site.apply_fault(faults.Http(status=None, path="/api/v0/import", applied=True, count=1))
    assert bench.ask("POST", "import", EMPTY).answer is None
    assert len(bench.labs) == 1
    assert bench.ask("POST", "import", EMPTY).answer.status == 200


async def test_an_applied_request_can_be_answered_with_an_error() -> None:
    bench = SiteBench()
    bench.site.apply_fault(faults.Http(status=502, path="/api/v0/import", applied=True))
    assert bench.ask("POST", "import", EMPTY).answer.status == 502
    assert len(bench.labs) == 1


async def test_a_fault_may_affect_one_method_only() -> None:
    bench = SiteBench()
    bench.site.apply_fault(faults.Http(status=500, path="/api/v0/labs", method="DELETE"))
    assert bench.ask("GET", "labs").answer.status == 200
    assert bench.ask("DELETE", "labs/x").answer.status == 500


async def test_a_late_import_is_applied_once_whether_its_client_waits_or_not() -> None:
    bench = SiteBench()
    bench.site.apply_fault(faults.Late(path="/api/v0/import", seconds=70, count=2))
    left, waiting = bench.ask("POST", "import", EMPTY), bench.ask("POST", "import", EMPTY)
    assert left.after_seconds == waiting.after_seconds == 70
    await clock.sleep(69)
    assert bench.labs == []
    await clock.sleep(2)
    assert len(bench.labs) == 2
    assert waiting.answer().status == 200
    assert len(bench.labs) == 2


async def test_the_seed_decides_which_imports_lose_their_answer_or_come_late() -> None:
    async def imports() -> list[str]:
        bench = SiteBench()
        bench.site.server.apply_options(ServerOptions(people=False, request_trouble=0.5), 0.0)
        found = []
        for number in range(20):
            reply = bench.ask("POST", "import", EMPTY)
            late = reply.after_seconds > 0
            found.append("late" if late else "lost" if reply.answer is None else "done")
            await clock.sleep(LATE_IMPORT_SECONDS + 1)
            assert len(bench.labs) == number + 1
        return found

    first = await imports()
    assert set(first) == {"late", "lost", "done"}
    assert first == await imports()


async def test_clearing_ends_faults_of_labs_and_of_requests() -> None:
    bench = SiteBench()
    for fault in (RefuseLab(action="import"), faults.Http(status=500, path="/api/v0/labs")):
        bench.site.apply_fault(fault)
    assert bench.ask("POST", "import", EMPTY).answer.status == 400
    bench.site.recover()
    assert bench.ask("POST", "import", EMPTY).answer.status == 200
    assert bench.ask("GET", "labs").answer.status == 200


def test_every_kind_of_fault_can_be_read_as_the_control_endpoint_does() -> None:
    for body in (
        b'{"kind": "never_boots", "node": "r1", "state": "QUEUED", "count": 1}',
        b'{"kind": "stops_after_boot", "seconds": 5}',
        b'{"kind": "slow_stop", "seconds": null}',
        b'{"kind": "refuse_lab", "action": "wipe"}',
        b'{"kind": "late", "path": "/api/v0/import", "seconds": 5}',
        b'{"kind": "http", "status": null, "applied": true}',
    ):
        msgspec.json.decode(body, type=faults.Fault)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind": "never_boots", "count": 0}', type=faults.Fault)
