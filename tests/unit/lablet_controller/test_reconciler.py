"""A placed session becomes one lab with every node booted, and leaves nothing behind, whatever dies when."""

from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from lcm.cml.sessions import server_of
from lcm.core.election import LeadershipLost
from lcm.domain.errors import Conflict, Fenced, LabRefused, Unreachable
from lcm.domain.lablet.lab import LabStep, StepStatus
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import (
    ARCHIVED,
    ENDED,
    FAILED,
    INSTANTIATING,
    PENDING_SCHEDULING,
    READY,
    RUNNING,
    SCHEDULED,
    STOPPING,
    TERMINATED,
    SessionStatus,
)
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import DRAINING, STARTING
from lcm.domain.lifecycle import STOPPED as WORKER_STOPPED
from lcm.domain.lifecycle import TERMINATED as WORKER_TERMINATED
from lcm.domain.worker import WorkerInstance
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.lab_faults import NeverBoots, RefuseLab, SlowStop
from lcm.simulator.cml.topology import import_file, read_file
from support.lablet_bench import LAB, Killed, LabletBench
from support.virtual_time import WrongClock

LIVE: Final = (SCHEDULED, INSTANTIATING, READY, RUNNING)
WHOLE: Final = {"import_lab", "start_lab", "stop_lab", "wipe_lab", "delete_lab"}
CHANGES: Final = WHOLE | {"set_node_tags", "stop_node"}


@pytest.fixture
async def bench() -> LabletBench:
    return await LabletBench().open()


async def assert_nothing_is_left(bench: LabletBench) -> None:
    assert bench.titles() == []
    assert (await bench.worker()).claims == ()


def states_of(bench: LabletBench) -> list[str]:
    [lab] = bench.cml.labs.all()
    return sorted(str(node.state) for node in lab.nodes.values())


async def test_a_placed_session_runs_when_every_node_has_booted(bench: LabletBench) -> None:
    session = await bench.drive(RUNNING)
    [lab] = bench.cml.labs.all()
    assert session.lab is not None
    assert (session.lab.lab_id, session.lab.title) == (lab.id, lab.title)
    assert states_of(bench) == ["BOOTED", "BOOTED"]
    assert session.nodes == {"pc1": "BOOTED", "sw": "BOOTED"}
    assert session.steps[LabStep.BOOT].status is StepStatus.COMPLETED
    [pc] = [node for node in lab.nodes.values() if node.label == "pc1"]
    assert pc.tags == [f"serial:{port}" for port in session.ports.values()]


async def test_a_lab_that_comes_up_costs_no_call_that_proves_nothing(bench: LabletBench) -> None:
    """A class is as many of them at once."""
    await bench.drive(RUNNING)
    until_it_runs = bench.calls[: len(bench.calls) - bench.calls[::-1].index("move")]
    assert until_it_runs.count("get_topology") == 1
    assert "get_lab" not in until_it_runs


async def test_the_intent_is_recorded_before_the_import_and_the_id_right_after_it(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    at = bench.calls.index("import_lab")
    assert bench.calls.index("intend_import") < bench.calls.index("list_labs") < at
    assert bench.calls[at + 1] == "record_lab"


async def test_a_session_that_a_person_ends_leaves_nothing(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    await bench.end()
    assert (await bench.drive(*ENDED)).status is TERMINATED
    await assert_nothing_is_left(bench)


async def test_a_session_ends_at_its_time_and_not_before(bench: LabletBench) -> None:
    session = await bench.drive(RUNNING)
    assert session.ends_at is not None
    while bench.clock.now() < session.ends_at - timedelta(seconds=61):
        await bench.step()
    assert (await bench.session()).status is RUNNING
    assert (await bench.drive(*ENDED)).status is ARCHIVED
    assert bench.clock.now() < session.ends_at + timedelta(seconds=60)
    await assert_nothing_is_left(bench)


@pytest.mark.parametrize("minutes", [-5, 5])
async def test_a_controller_whose_clock_is_wrong_boots_and_ends_labs_on_time(minutes: int) -> None:
    bench = await LabletBench().open()
    bench.controller_clock = WrongClock(timedelta(minutes=minutes))
    await bench.restart_controller()
    session = await bench.drive(RUNNING)
    assert session.steps[LabStep.BOOT].attempts == 1
    assert session.ends_at is not None
    assert (await bench.drive(*ENDED)).status is ARCHIVED
    assert abs(bench.clock.now() - session.ends_at) < timedelta(seconds=60)
    assert bench.calls.count("start_lab") == bench.calls.count("stop_lab") == 1


async def test_a_booked_session_is_imported_five_minutes_before_its_start_and_runs_at_its_start() -> None:
    bench = LabletBench()
    slot = bench.slot(in_minutes=20)
    await bench.open(timeslot=slot)
    start = bench.clock.now() + timedelta(minutes=20)
    await bench.drive(INSTANTIATING, READY)
    assert abs(start - timedelta(minutes=5) - bench.clock.now()) < timedelta(seconds=10)
    await bench.drive(READY)
    session = await bench.drive(RUNNING)
    assert session.started_at is not None
    assert timedelta() <= session.started_at - start < timedelta(seconds=1)


async def test_a_lab_that_takes_longer_to_boot_is_imported_so_much_earlier() -> None:
    bench = LabletBench()
    bench.options = {"boot_lead_time_minutes": 12}
    await bench.open(timeslot=bench.slot(in_minutes=20))
    start = bench.clock.now() + timedelta(minutes=20)
    await bench.drive(INSTANTIATING, READY)
    assert abs(start - timedelta(minutes=12) - bench.clock.now()) < timedelta(seconds=10)


async def booked_and(status: SessionStatus) -> LabletBench:
    """A booked session, which stays READY until its timeslot begins."""
    bench = LabletBench()
    await bench.open(timeslot=bench.slot(in_minutes=20))
    if status is INSTANTIATING:
        bench.cml.labs.faults.add(NeverBoots())
    await bench.drive(status)
    for _ in range(2 * (status is INSTANTIATING)):
        await bench.step()
    return bench


@pytest.mark.parametrize("status", LIVE)
async def test_an_end_may_be_requested_in_every_status(status: SessionStatus) -> None:
    bench = await booked_and(status)
    await bench.end()
    assert (await bench.drive(*ENDED)).status is TERMINATED
    await assert_nothing_is_left(bench)


async def test_an_end_cuts_the_wait_for_a_boot_short(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(NeverBoots())
    for _ in range(4):
        await bench.step()
    await bench.end()
    before = bench.clock.now()
    await bench.drive(*ENDED)
    assert bench.clock.now() - before < timedelta(seconds=60)
    await assert_nothing_is_left(bench)


# Whatever dies


async def calls_of_a_whole_life() -> list[str]:
    bench = await LabletBench().open()
    await bench.drive(RUNNING)
    await bench.end()
    await bench.drive(*ENDED)
    return bench.calls


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_controller_may_die_before_and_after_every_call(is_done: bool) -> None:
    """One lab while it lives, none when it has ended, and never a second import that was not needed."""
    for number in range(1, len(await calls_of_a_whole_life()) + 1):
        bench = await LabletBench().open()
        died: list[str] = []

        def die(at: int, name: str, done: bool, number: int = number, died: list[str] = died) -> None:
            if at == number and done is is_done and not died:
                died.append(name)
                raise Killed

        bench.disturb = die
        for _ in range(100):
            session = await bench.session()
            if session.status is RUNNING:
                break
            await bench.step()
        assert session.status is RUNNING, (number, died, session.status_reason)
        assert len(bench.titles()) == 1, (number, died)
        await bench.end()
        ended = await bench.drive(*ENDED)
        assert (ended.status, bench.titles()) == (TERMINATED, []), (number, died)
        assert bench.calls.count("import_lab") <= 1 + (not is_done and died == ["import_lab"])
        assert (await bench.worker()).claims == (), (number, died)


@pytest.mark.parametrize(
    "name",
    [
        "list_labs",
        "get_lab",
        "nodes",
        "has_converged",
        *sorted(WHOLE),
        "move",
        "intend_import",
        "record_lab",
        "report_progress",
        "report_cleaned",
    ],
)
async def test_the_answer_of_every_call_may_be_lost(bench: LabletBench, name: str) -> None:
    lost: set[int] = set()

    def lose(number: int, called: str, is_done: bool) -> None:
        if called == name and is_done and len(lost) < 3 and number not in lost:
            lost.add(number)
            raise Unreachable("no answer")

    bench.disturb = lose
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    assert len(bench.titles()) == 1
    await bench.end()
    await bench.drive(*ENDED)
    assert lost
    await assert_nothing_is_left(bench)


async def test_an_import_without_an_answer_is_found_by_its_marker(bench: LabletBench) -> None:
    bench.labs.cut.add("import_lab")
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    assert session.lab.is_adopted
    assert (bench.calls.count("import_lab"), len(bench.titles())) == (1, 1)


@pytest.mark.parametrize(("is_cut", "event"), [(False, "lab_imported"), (True, "lab_adopted")])
async def test_the_lab_of_a_session_is_audited_once(bench: LabletBench, is_cut: bool, event: str) -> None:
    if is_cut:
        bench.labs.cut.add("import_lab")
    session = await bench.drive(RUNNING)
    entries = await bench.records.lablet_audit.newest(session_id=session.id)
    assert [each.event for each in entries if each.event.startswith("lab_")] == [event]


async def test_an_import_that_lands_late_is_waited_for(bench: LabletBench) -> None:
    """Before its time is over nothing is imported again."""
    bench.labs.failing["import_lab"] = Unreachable("timed out")
    for _ in range(6):
        await bench.step()
    del bench.labs.failing["import_lab"]
    session = await bench.session()
    topology = (await bench.reconciler.control_plane.get_topology(session.id)).encode()
    assert session.lab is not None
    now = bench.clock.now().timestamp()
    lab = import_file(bench.cml.labs, read_file(topology), now, owner_id=ADMIN_ID, title=session.lab.title)
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    assert (session.lab.lab_id, len(bench.titles())) == (lab.id, 1)


async def test_a_session_that_ends_waits_for_an_import_that_may_land(bench: LabletBench) -> None:
    bench.labs.failing["import_lab"] = Unreachable("timed out")
    for _ in range(3):
        await bench.step()
    await bench.end()
    before = bench.clock.now()
    await bench.drive(*ENDED)
    assert bench.clock.now() - before > timedelta(seconds=60)
    await assert_nothing_is_left(bench)


async def test_two_controllers_make_one_lab(bench: LabletBench) -> None:
    """The first goes on as if it still led: its writes and its changes are refused."""
    first = bench.reconciler
    second = await bench.restart_controller()
    refused = 0
    for _ in range(40):
        try:
            await bench.reconcile_as(first)
        except (Fenced, LeadershipLost):
            refused += 1
        if (await bench.session()).status is RUNNING:
            break
        await bench.step(second)
    assert (await bench.session()).status is RUNNING
    assert (len(bench.titles()), bench.calls.count("import_lab"), refused > 0) == (1, 1, True)


async def test_a_change_that_was_decided_on_an_older_session_is_not_made(bench: LabletBench) -> None:
    """The end is requested between the decision to start the lab and its start."""
    ended: list[int] = []

    def note(number: int, called: str, is_done: bool) -> None:
        if called == "import_lab" and is_done:
            ended.append(number)

    bench.disturb = note
    session = await bench.session()
    while not ended:
        await bench.step()
        session = await bench.session()
    await bench.end()
    server = server_of(await bench.worker(), use_private_ip=False)
    assert server is not None
    with pytest.raises(Conflict, match="decide again"):
        await bench.reconciler.gate.start(session, server)


async def test_a_lead_that_is_lost_while_the_gate_reads_changes_no_lab(bench: LabletBench) -> None:
    await bench.step()
    assert (await bench.drive(RUNNING)).lab is not None
    await bench.end()
    before = len(bench.calls)

    def depose(number: int, called: str, is_done: bool) -> None:
        if called == "get_session" and is_done and bench.calls[before:].count("get_session") == 1:
            bench.revision += 1

    bench.disturb = depose
    with pytest.raises(LeadershipLost):
        await bench.reconcile_as(bench.reconciler)
    assert CHANGES.isdisjoint(bench.calls[before:])


async def test_a_deletion_that_is_answered_is_no_proof(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    await bench.end()
    bench.skipped.add("delete_lab")
    for _ in range(20):
        await bench.step()
    assert ((await bench.session()).status, len((await bench.worker()).claims)) == (STOPPING, 1)
    bench.skipped.clear()
    await bench.drive(*ENDED)
    await assert_nothing_is_left(bench)


async def test_a_lab_with_a_node_that_stands_still_is_not_ready(bench: LabletBench) -> None:
    """CML has converged, and one node is off."""
    bench.cml.labs.faults.add(NeverBoots(node="pc1", count=1))
    for _ in range(4):
        await bench.step()
    [lab] = bench.cml.labs.all()
    [pc] = [node for node in lab.nodes.values() if node.label == "pc1"]
    bench.cml.labs.stop_node(pc, bench.clock.now().timestamp(), "x")
    for _ in range(20):
        await bench.step()
    assert lab.has_converged
    assert (str(pc.state), (await bench.session()).status) == ("STOPPED", INSTANTIATING)


# Other labs


async def test_foreign_labs_and_copies_are_never_touched(bench: LabletBench) -> None:
    now = bench.clock.now().timestamp()
    foreign = import_file(bench.cml.labs, read_file(LAB.encode()), now, owner_id="other", title="mine")
    bench.cml.labs.start(foreign, now, "other")
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    topology = (await bench.reconciler.control_plane.get_topology(session.id)).encode()
    copy = import_file(bench.cml.labs, read_file(topology), now, owner_id="other", title=session.lab.title)
    await bench.end()
    await bench.drive(*ENDED)
    assert {lab.id for lab in bench.cml.labs.all()} == {foreign.id, copy.id}
    touched = {lab_id for name, lab_id in bench.labs.calls if name in CHANGES - {"import_lab"}}
    assert touched == {session.lab.lab_id}


async def test_a_lab_that_people_delete_ends_its_session(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    [lab] = bench.cml.labs.all()
    now = bench.clock.now().timestamp()
    bench.cml.labs.stop(lab, now, "x")
    await bench.clock.sleep(60)
    bench.cml.labs.advance(bench.clock.now().timestamp())
    bench.cml.labs.wipe(lab, bench.clock.now().timestamp(), "x")
    bench.cml.labs.delete(lab)
    ended = await bench.drive(*ENDED)
    assert (ended.status, "lab_deleted_outside" in ended.state_history[-2].reason) == (FAILED, True)


# What CML refuses


async def test_a_lab_that_cml_does_not_import_fails_with_its_words(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(RefuseLab(action="import", description="no such node definition"))
    ended = await bench.drive(*ENDED)
    assert ended.status is FAILED
    assert "lab_invalid: no such node definition" in ended.status_reason
    await assert_nothing_is_left(bench)


async def test_a_start_that_is_refused_is_tried_three_times(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(RefuseLab(action="start", description="Cannot start: a node is broken."))
    ended = await bench.drive(*ENDED)
    assert ended.status is FAILED
    assert "start_refused: Cannot start" in ended.status_reason
    assert bench.calls.count("start_lab") == 3
    await assert_nothing_is_left(bench)


async def test_nodes_that_do_not_boot_are_tried_three_times_the_last_in_a_new_lab(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(NeverBoots(node="pc1"))
    ended = await bench.drive(*ENDED)
    assert ended.status is FAILED
    assert "boot_timeout: not booted in time: pc1" in ended.status_reason
    assert (bench.calls.count("start_lab"), bench.calls.count("import_lab")) == (3, 2)
    await assert_nothing_is_left(bench)


async def test_a_node_that_boots_at_the_second_try_is_enough(bench: LabletBench) -> None:
    bench.cml.labs.faults.add(NeverBoots(node="pc1", count=1))
    await bench.drive(RUNNING)
    assert (bench.calls.count("start_lab"), bench.calls.count("import_lab")) == (2, 1)


@pytest.mark.parametrize("minutes", [-5, 0, 5])
async def test_a_stop_without_effect_is_repeated_every_two_minutes_however_wrong_the_clock_is(
    minutes: int,
) -> None:
    bench = await LabletBench().open()
    bench.controller_clock = WrongClock(timedelta(minutes=minutes))
    await bench.restart_controller()
    await bench.drive(RUNNING)
    bench.cml.labs.faults.add(SlowStop(node="pc1", count=2))
    await bench.end()
    began = bench.clock.now()
    assert (await bench.drive(*ENDED)).status is TERMINATED
    assert bench.calls.count("stop_lab") == 3
    assert timedelta(minutes=4) <= bench.clock.now() - began < timedelta(minutes=5)


async def test_a_removal_that_is_refused_is_shown_as_stuck_and_finished_later(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    bench.labs.failing["delete_lab"] = LabRefused(400, "no")
    await bench.end()
    for _ in range(30):
        await bench.step()
    session = await bench.session()
    assert (session.status, session.cleanup.is_stuck) == (STOPPING, True)
    assert (await bench.worker()).sessions == (bench.session_id,)
    del bench.labs.failing["delete_lab"]
    await bench.drive(*ENDED)
    await assert_nothing_is_left(bench)


# The worker


async def test_a_worker_that_drains_loses_the_sessions_without_a_lab(bench: LabletBench) -> None:
    await bench.change_worker(lambda worker: replace(worker, status=DRAINING))
    session = await bench.drive(PENDING_SCHEDULING)
    assert (session.worker_id, (await bench.worker()).claims) == (None, ())


async def test_a_worker_that_drains_finishes_the_labs_it_has(bench: LabletBench) -> None:
    await bench.step()
    assert (await bench.session()).lab is not None
    await bench.change_worker(lambda worker: replace(worker, status=DRAINING))
    await bench.drive(RUNNING)


async def test_a_session_waits_for_a_worker_that_comes_up(bench: LabletBench) -> None:
    await bench.change_worker(lambda worker: replace(worker, status=STARTING))
    for _ in range(5):
        await bench.step()
    assert (await bench.session()).status is SCHEDULED
    assert CHANGES.isdisjoint(bench.calls)


async def lose_worker(bench: LabletBench) -> None:
    await bench.change_worker(lambda worker: replace(worker, status=WORKER_TERMINATED, claims=()))
    del bench.labs.servers["10.0.0.1"]


@pytest.mark.parametrize("status", LIVE)
async def test_a_session_whose_worker_is_lost_is_placed_again(status: SessionStatus) -> None:
    bench = await booked_and(status)
    await lose_worker(bench)
    session = await bench.drive(PENDING_SCHEDULING)
    assert (session.worker_id, session.lab) == (None, None)


async def test_a_session_that_loses_its_worker_shortly_before_its_end_has_failed(bench: LabletBench) -> None:
    session = await bench.drive(RUNNING)
    assert session.ends_at is not None
    while bench.clock.now() < session.ends_at - timedelta(minutes=10):
        await bench.step()
    await lose_worker(bench)
    assert (await bench.drive(*ENDED)).status is FAILED


async def test_another_instance_of_the_worker_has_not_the_lab(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    await bench.change_worker(
        lambda worker: replace(worker, instance=WorkerInstance(id=InstanceId("i-2"), public_ip="10.0.0.1"))
    )
    before = len(bench.titles())
    await bench.drive(PENDING_SCHEDULING)
    assert len(bench.titles()) == before


async def test_a_stopped_worker_holds_the_claim_until_the_lab_is_removed(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    await bench.change_worker(lambda worker: replace(worker, status=WORKER_STOPPED))
    await bench.end()
    for _ in range(20):
        await bench.step()
    session: LabletSession = await bench.session()
    assert (session.status, (await bench.worker()).sessions) == (STOPPING, (session.id,))
    await bench.change_worker(lambda worker: replace(worker, status="running"))
    await bench.drive(*ENDED)
    await assert_nothing_is_left(bench)
