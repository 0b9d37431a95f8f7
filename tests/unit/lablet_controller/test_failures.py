"""What goes wrong while a lab is brought up, and what follows: another try, another worker, or the end."""

from datetime import timedelta
from typing import Literal

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.lablets.sweep_claims import ClaimSweep
from lcm.domain.capacity import Capacity
from lcm.domain.errors import Unreachable
from lcm.domain.lablet.lab import LabStep
from lcm.domain.lablet.states import (
    ENDED,
    FAILED,
    INSTANTIATING,
    PENDING_SCHEDULING,
    RUNNING,
    SCHEDULED,
    SessionStatus,
)
from lcm.domain.lifecycle import DRAINING
from lcm.simulator.cml.lab_faults import NeverBoots, RefuseLab
from support.lablet_bench import LabletBench

NO_ROOM = Capacity(cpu=0.1, memory_gb=0.1, storage_gb=0.1, nodes=0)


@pytest.fixture
async def bench() -> LabletBench:
    return await LabletBench().open()


async def seconds_until(bench: LabletBench, *statuses: SessionStatus) -> float:
    since = bench.clock.now()
    await bench.drive(*statuses, steps=1_200)
    return (bench.clock.now() - since).total_seconds()


# A start that CML refuses


@pytest.mark.parametrize("reason", ["license", "resources"])
async def test_a_worker_without_room_for_a_lab_is_avoided_and_keeps_nothing_of_it(
    bench: LabletBench, reason: Literal["license", "resources"]
) -> None:
    bench.cml.labs.faults.add(RefuseLab(action="start", reason=reason))
    session = await bench.drive(PENDING_SCHEDULING)
    assert bench.calls.count("start_lab") == 3
    assert (bench.titles(), (await bench.worker()).claims) == ([], ())
    avoided = session.avoided_workers["w1"] - bench.clock.now()
    assert timedelta(minutes=9) < avoided <= timedelta(minutes=10)
    assert session.state_history[-1].reason.startswith("start_refused: Cannot start")
    bench.cml.labs.faults.clear()
    await bench.clock.sleep(60)
    await bench.place()
    assert (await bench.drive(RUNNING)).lab_generation == 2
    assert len(bench.titles()) == 1


async def test_a_lab_that_no_worker_has_room_for_fails_after_five_placements(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(RefuseLab(action="start", reason="resources"))
    for _ in range(5):
        await bench.drive(PENDING_SCHEDULING)
        await bench.clock.sleep(60)
        await bench.place()
    ended = await bench.drive(*ENDED)
    assert (ended.status, "no compute host" in ended.status_reason) == (FAILED, True)
    assert (bench.titles(), (await bench.worker()).claims) == ([], ())


async def test_a_controller_that_dies_before_it_reports_the_lab_gone_leaves_a_claim_that_is_kept(
    bench: LabletBench,
) -> None:
    """The listing of the worker's labs releases it; until then nothing else takes its room."""
    bench.cml.labs.faults.add(RefuseLab(action="start", reason="resources"))
    died = bench.die_once_after("unschedule")
    session = await bench.drive(PENDING_SCHEDULING)
    [claim] = (await bench.worker()).claims
    assert (died, claim.is_retained, session.attempt > claim.attempt) == (["unschedule"], True, True)


# A CML that does not answer


async def test_a_session_that_gets_no_lab_is_placed_again_after_a_quarter_of_an_hour(
    bench: LabletBench,
) -> None:
    del bench.labs.servers["10.0.0.1"]
    waited = await seconds_until(bench, PENDING_SCHEDULING)
    assert 900 <= waited < 1_000
    [claim] = (await bench.worker()).claims
    assert claim.is_retained, "an import was intended"


async def test_a_due_session_does_not_wait_longer_for_a_cml_that_is_not_ready(bench: LabletBench) -> None:
    await bench.change_worker(lambda worker: replace(worker, cml=replace(worker.cml, is_ready=False)))
    assert 900 <= await seconds_until(bench, PENDING_SCHEDULING) < 1_000
    assert (await bench.worker()).claims == ()


async def test_a_session_that_is_not_due_waits_for_its_worker() -> None:
    bench = LabletBench()
    await bench.open(timeslot=bench.slot(in_minutes=34))
    await bench.change_worker(lambda worker: replace(worker, cml=replace(worker.cml, is_ready=False)))
    assert await seconds_until(bench, PENDING_SCHEDULING) == pytest.approx(60 * (34 - 5 + 15), abs=10)


async def test_a_lab_that_exists_is_waited_for_as_long_as_it_takes(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(NeverBoots())
    while (lab := (await bench.session()).lab) is None or lab.lab_id is None:
        await bench.step()
    bench.labs.failing["get_lab"] = Unreachable("502")
    for _ in range(400):
        await bench.step()
    assert (await bench.session()).status is INSTANTIATING


# Nodes that take long


async def test_the_definition_says_how_long_its_nodes_may_boot() -> None:
    bench = LabletBench()
    bench.options = {"boot_timeout_seconds": 40}
    await bench.open()
    bench.cml.labs.faults.add(NeverBoots(node="pc1"))
    await bench.drive(INSTANTIATING)
    since = bench.clock.now()
    while bench.calls.count("start_lab") < 2:
        await bench.step()
    assert bench.clock.now() - since < timedelta(seconds=90)


async def test_a_kind_of_node_that_boots_slowly_is_given_time(bench: LabletBench) -> None:
    slow = bench.cml.definitions["alpine"]._replace(boot_seconds=150)
    bench.cml.definitions["alpine"] = slow
    bench.cml.labs.faults.add(NeverBoots(node="pc1"))
    await bench.drive(INSTANTIATING)
    since = bench.clock.now()
    while bench.calls.count("start_lab") < 2:
        await bench.step()
    assert timedelta(seconds=900) < bench.clock.now() - since < timedelta(seconds=1_000)


async def test_nodes_that_leave_the_queue_of_cml_late_are_given_their_whole_time(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(NeverBoots(node="pc1", state="QUEUED"))
    while (await bench.session()).nodes.get("pc1") != "QUEUED":
        await bench.step()
    since = bench.clock.now()
    await bench.clock.sleep(200)
    await bench.step()
    bench.cml.labs.faults.clear()
    [lab] = bench.cml.labs.all()
    [pc] = [node for node in lab.nodes.values() if node.label == "pc1"]
    pc.state = type(pc.state).STARTED
    while bench.calls.count("start_lab") < 2:
        await bench.step()
    waited = (bench.clock.now() - since).total_seconds()
    assert 500 <= waited < 700
    assert (await bench.session()).steps[LabStep.BOOT].attempts == 2


# A worker that drains


async def test_a_worker_that_drains_tries_a_failed_lab_three_times(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(NeverBoots(node="pc1"))
    await bench.drive(INSTANTIATING)
    while (await bench.session()).lab is None:
        await bench.step()
    await bench.change_worker(lambda worker: replace(worker, status=DRAINING))
    ended = await bench.drive(*ENDED)
    assert (ended.status, ended.worker_id) == (FAILED, "w1")
    assert bench.calls.count("start_lab") == 3
    assert SCHEDULED not in [line.target for line in ended.state_history[2:]]


# A claim that is lost, and does not fit back


@pytest.mark.parametrize("call", ["intend_import", "delete_lab"])
async def test_a_session_that_lost_its_claim_imports_no_lab_and_looks_for_another_worker(
    bench: LabletBench, call: str
) -> None:
    """Before its first import, and when nodes that did not boot twice have it import its lab anew."""
    bench.cml.labs.faults.add(NeverBoots())
    died = bench.die_once_after(call)
    while not died:
        await bench.step()
    await bench.change_worker(lambda worker: replace(worker, claims=(), declared_capacity=NO_ROOM))
    await ClaimSweep(bench.records, bench.policies).sweep()
    assert (lab := (await bench.session()).lab) is not None
    assert lab.claim_lost_at is not None
    imports = bench.calls.count("import_lab")
    session = await bench.drive(PENDING_SCHEDULING)
    assert session.state_history[-1].reason.startswith("claim_lost: ")
    assert "w1" in session.avoided_workers
    assert (bench.titles(), bench.calls.count("import_lab")) == ([], imports)
