"""A waiting session says why and when; a scheduler that is silent is named."""

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.queries.explain_session import explain_session
from lcm.control_plane.queries.queue import expected_times, scheduling_queue
from lcm.control_plane.records.epochs import Epochs
from lcm.control_plane.records.presence import SCHEDULER, SchedulerPresence
from lcm.control_plane.store.memory import MemoryStore
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.decision import Outcome
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import LabletSession, WaitCode
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.states import READY, SCHEDULED, STOPPING, SessionStatus
from lcm.domain.lifecycle import STARTING
from lcm.rest.scheduling import SessionExplanation
from support import lablets
from support.scheduling import NEEDS, Classroom
from support.virtual_time import VirtualClock


async def explained(room: Classroom, session_id: str) -> SessionExplanation:
    records = room.plane.records
    session = await find_session(records, session_id)
    assert session is not None
    return await explain_session(records, room.plane.policies, session)


async def test_a_waiting_session_names_what_every_worker_lacks_for_it() -> None:
    room = Classroom()
    await room.add_worker("b", size=NEEDS, status=STARTING, is_ready=False)
    await room.add_worker("a", size=Capacity(cpu=1, memory_gb=8, storage_gb=10, nodes=4))
    await room.add_session("s1")
    found = await explained(room, "s1")
    assert (found.outcome, found.code, found.worker_id) == (Outcome.WAIT, WaitCode.WAITS_FOR_WORKER, "b")
    assert [worker.worker_name for worker in found.workers] == ["a", "b"]
    assert [(each.sub, each.need) for each in found.workers[0].reasons] == [("cpu", "4 CPUs")]
    assert [each.sub for each in found.workers[1].reasons] == ["starting"]
    assert (found.position, found.ahead) == (1, 0)
    assert found.eta is not None
    assert found.next_event is not None
    assert found.next_event.what == "worker b is ready"


async def test_an_explanation_is_what_the_next_cycle_does() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("s1")
        await room.add_session("s2")
        before = {name: await explained(room, name) for name in ("s1", "s2")}
        await room.clock.sleep(1)
        assert (await room.session("s1")).worker_id == before["s1"].worker_id == "w1"
        assert before["s2"].outcome is Outcome.SCALE_UP
        assert len(await room.workers()) == 2


async def test_the_reason_keeps_its_time() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", status=STARTING, is_ready=False)
        await room.add_session("s1")
        await room.clock.sleep(1)
        first = await explained(room, "s1")
        await room.clock.sleep(120)
        assert first.since is not None
        assert (await explained(room, "s1")).since == first.since


async def test_a_session_that_waits_without_a_scheduler_says_so_after_a_minute() -> None:
    room = Classroom()
    await room.add_worker("w1")
    await room.add_session("s1")
    room.plane.records.scheduler.on_call("worker-controller")
    await room.clock.sleep(60)
    assert not (await explained(room, "s1")).is_scheduler_silent
    await room.clock.sleep(1)
    found = await explained(room, "s1")
    assert (found.code, found.outcome, found.is_scheduler_silent) == (
        WaitCode.SCHEDULER_DOWN,
        Outcome.ASSIGN,
        True,
    )
    assert found.text.endswith("until one does. Then: Goes to worker w1.")
    queue = await scheduling_queue(room.plane.records, room.plane.policies, lambda _: True)
    assert queue.is_scheduler_silent


async def test_a_scheduler_that_only_polls_is_not_silent() -> None:
    async with Classroom().running() as room:
        await room.clock.sleep(3600)
        assert not room.plane.records.scheduler.is_silent


async def test_a_scheduler_that_calls_another_control_plane_is_not_silent() -> None:
    clock, epochs = VirtualClock(), Epochs(MemoryStore())
    here, there = SchedulerPresence(epochs, clock), SchedulerPresence(epochs, clock)
    there.subscribe(here.learn)
    assert not here.is_silent
    await clock.sleep(100)
    there.on_call("worker-controller")
    assert here.is_silent
    there.on_call(SCHEDULER)
    assert not here.is_silent
    await clock.sleep(61)
    epochs.disconnected_peers.add("http://other")
    assert not here.is_silent


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"status": SCHEDULED}, "It has worker w1, on which its lab is started."),
        ({"status": READY}, "Its lab is ready on worker w1"),
        ({"status": STOPPING, "end_text": "not needed"}, "Its lab is removed from worker w1: not needed."),
        (
            {"status": SessionStatus.FAILED, "status_reason": "no worker is large enough"},
            "It ended as failed: no worker is large enough.",
        ),
    ],
)
async def test_a_session_that_does_not_wait_says_where_it_is_and_why(
    changes: dict[str, object], text: str
) -> None:
    room = Classroom()
    await room.add_worker("w1")
    await room.add_session("s1")
    await room.clock.sleep(120)

    def place(session: LabletSession) -> LabletSession:
        return replace(session, worker_id="w1", ready_at=room.clock.now(), **changes)

    await room.plane.records.sessions.change("s1", place)
    found = await explained(room, "s1")
    assert found.text.startswith(text)
    assert (found.outcome, found.worker_id, found.is_scheduler_silent) == (None, "w1", False)


async def test_an_archived_session_is_explained() -> None:
    room = Classroom()
    session = await room.add_session("s1")
    await room.plane.records.archived_sessions.add(replace(session, status=SessionStatus.ARCHIVED))
    await room.plane.records.sessions.purge(session)
    assert (await explained(room, "s1")).text.startswith("It ended as archived")


async def test_the_queue_is_in_the_order_of_decisions_and_counts_those_that_are_not_shown() -> None:
    room = Classroom()
    for name in ("s1", "s2", "s3"):
        await room.add_session(name, needs=Capacity(cpu=4))
        await room.clock.sleep(1)
    queue = await scheduling_queue(
        room.plane.records, room.plane.policies, lambda session: session.id != "s1"
    )
    assert [(entry.session.id, entry.position) for entry in queue.items] == [("s2", 2), ("s3", 3)]


async def test_a_session_whose_end_is_requested_is_not_placed() -> None:
    room = Classroom()
    await room.add_worker("w1")
    await room.add_session("s1")
    await room.plane.records.sessions.change(
        "s1", lambda each: replace(each, desired_status="terminated", end_text="not needed")
    )
    assert (await explained(room, "s1")).text == "Its end is requested: not needed."
    queue = await scheduling_queue(room.plane.records, room.plane.policies, lambda _: True)
    assert queue.items == []


def test_the_first_of_those_for_which_nothing_is_on_the_way_is_estimated_and_what_is_impossible_is_not() -> (
    None
):
    full = lablets.worker(cpu=4, claims=(lablets.claim(4, ends_at=lablets.at(20)),))
    queue = [
        lablets.session("huge", cpu=100),
        lablets.session("s1", cpu=4, minute=1),
        lablets.session("s2", cpu=4, minute=2),
    ]
    snapshot = Snapshot(workers=(full,), sessions=tuple(queue))
    decisions = PlacementEngine.plan(snapshot, lablets.NOON).decisions
    found = expected_times(queue, decisions, snapshot, lablets.NOON)
    assert found == {"huge": None, "s1": lablets.at(20) + snapshot.times.teardown, "s2": None}
