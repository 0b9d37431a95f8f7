"""Decisions are recorded when they change, within bounds, and never by a leader that was replaced."""

from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from lcm.control_plane.records.placements import KIND, PlacementLog
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document
from lcm.core.ids import RandomIds
from lcm.domain.errors import Fenced, Unreachable
from lcm.domain.lablet.decision import DecisionRecord, Outcome
from lcm.domain.lablet.filters import Label
from lcm.domain.lablet.session import WaitCode
from lcm.domain.lifecycle import STARTING
from support.lablets import NOON
from support.scheduling import NEEDS, Classroom
from support.virtual_time import VirtualClock


def decided(session_id: str = "s1", **changes: object) -> DecisionRecord:
    made = DecisionRecord(
        session_id=session_id,
        at=NOON,
        outcome=Outcome.WAIT,
        code=WaitCode.NO_ROOM,
        worker_id=None,
        text="",
        score=None,
        candidates=(),
        counts={},
        revision="r",
        milliseconds=1,
    )
    return replace(made, **changes)


class Shelf:
    """A log over a store, with the fence of a leader."""

    def __init__(self, most: int = 10_000) -> None:
        self.store = MemoryStore()
        self.clock = VirtualClock()
        self.most = most
        self.log = self.reopened()

    def reopened(self) -> PlacementLog:
        return PlacementLog(self.store, self.clock, RandomIds(Random(1)), most=self.most)

    async def append(self, *items: DecisionRecord) -> None:
        await self.log.append(items)
        await self.clock.sleep(1)

    async def names(self, *, session_id: str | None = None, worker_id: str | None = None) -> list[str]:
        found = await self.log.newest(session_id=session_id, worker_id=worker_id, before=None, limit=100)
        return [item.session_id for item in found.items]


@pytest.fixture
async def shelf() -> Shelf:
    return Shelf()


async def test_records_are_listed_newest_first_page_by_page(shelf: Shelf) -> None:
    await shelf.append(decided("a"), decided("b", worker_id="w1"))
    await shelf.append(decided("c"), decided("d"), decided("e"))
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await shelf.log.newest(before=cursor, limit=2)
        seen += [item.session_id for item in page.items]
        if (cursor := page.next) is None:
            break
    assert seen == ["e", "d", "c", "b", "a"]
    assert await shelf.names(session_id="c") == ["c"]
    assert await shelf.names(worker_id="w1") == ["b"]


async def test_what_is_recorded_already_is_left_out_also_after_a_restart(shelf: Shelf) -> None:
    await shelf.append(decided("a"))
    shelf.log = shelf.reopened()
    await shelf.append(decided("a", text="other words", at=NOON + timedelta(seconds=9)))
    assert await shelf.names() == ["a"]
    await shelf.append(decided("a", code=WaitCode.BACKOFF))
    assert await shelf.names() == ["a", "a"]


async def test_a_session_that_is_placed_on_the_same_worker_again_is_recorded_again(shelf: Shelf) -> None:
    placed = decided("a", outcome=Outcome.ASSIGN, code=None, worker_id="w1")
    await shelf.append(placed)
    await shelf.append(placed)
    assert await shelf.names() == ["a", "a"]


async def test_the_oldest_records_leave_when_there_are_too_many(shelf: Shelf) -> None:
    shelf.most = 10
    shelf.log = shelf.reopened()
    for number in range(6):
        await shelf.append(decided(f"{number}a"), decided(f"{number}b"))
    names = await shelf.names()
    assert len(names) <= 10
    assert names[:2] == ["5b", "5a"]
    assert "0a" not in names


async def test_records_leave_after_thirty_days(shelf: Shelf) -> None:
    await shelf.append(decided("old"))
    await shelf.clock.sleep(30 * 24 * 3600)
    await shelf.append(decided("new"))
    assert await shelf.names() == ["new"]


async def test_a_report_that_cannot_be_read_hides_no_other(shelf: Shelf) -> None:
    await shelf.append(decided("a"))
    await shelf.store.insert(Document(KIND, "20250101T000000.000000-000000-a", 1, b"{"))
    assert await shelf.names() == ["a"]
    shelf.log = shelf.reopened()
    await shelf.append(decided("b"))
    assert await shelf.names() == ["b", "a"]


async def test_reports_of_one_moment_keep_their_order(shelf: Shelf) -> None:
    for number in range(12):
        await shelf.log.append((decided(f"s{number:02}"),))
    assert await shelf.names() == [f"s{number:02}" for number in reversed(range(12))]


# What the scheduler reports.


async def records_of(room: Classroom, session_id: str | None = None) -> list[DecisionRecord]:
    found = await room.plane.records.placements.newest(session_id=session_id, before=None, limit=500)
    return found.items[::-1]


async def test_a_decision_that_does_not_change_is_recorded_once() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS, status=STARTING, is_ready=False)
        await room.add_session("s1")
        await room.clock.sleep(600)
        (record,) = await records_of(room)
        assert (record.outcome, record.code, record.worker_id) == (
            Outcome.WAIT,
            WaitCode.WAITS_FOR_WORKER,
            "w1",
        )
        assert record.counts[Label.STATUS] == 1
        assert len(record.revision) == 16
        assert room.ports[0].calls.count("placements") == 1


async def test_a_placement_is_recorded_with_its_candidates() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        await room.add_worker("w2")
        await room.add_session("s1")
        await room.clock.sleep(1)
        (record,) = await records_of(room)
        assert (record.outcome, record.worker_id) == (Outcome.ASSIGN, "w1")
        assert [each.worker_id for each in record.candidates] == ["w1", "w2"]
        assert record.score == record.candidates[0].score


async def test_a_launch_is_recorded_and_then_the_worker_that_comes() -> None:
    async with Classroom().running() as room:
        await room.add_session("s1")
        await room.clock.sleep(600)
        (worker,) = await room.workers()
        outcomes = [(each.outcome, each.worker_id) for each in await records_of(room, "s1")]
        assert outcomes == [(Outcome.SCALE_UP, None), (Outcome.WAIT, worker.id)]


async def test_a_new_leader_records_nothing_again() -> None:
    async with Classroom().running(schedulers=2) as room:
        await room.add_worker("w1", size=NEEDS, status=STARTING, is_ready=False)
        await room.add_session("s1")
        await room.clock.sleep(40)
        next(s for s in room.schedulers if s.service.election.is_leader).service.election.resign()
        await room.clock.sleep(120)
        assert len(await records_of(room)) == 1


async def test_records_that_were_not_received_are_sent_with_the_next_and_placements_do_not_wait() -> None:
    async with Classroom().running() as room:
        failures = iter(range(2))

        def disturb(call: str) -> None:
            if call == "placements" and next(failures, None) is not None:
                raise Unreachable("no answer")

        room.ports[0].before = disturb
        await room.add_worker("w1")
        await room.add_session("s1")
        await room.clock.sleep(1)
        assert (await room.session("s1")).worker_id == "w1"
        await room.clock.sleep(90)
        assert [each.session_id for each in await records_of(room)] == ["s1"]


async def test_a_leader_that_was_replaced_records_nothing() -> None:
    async with Classroom().running() as room:
        port = room.ports[0]
        old = port.epoch
        await port.claim_leadership("another store", 1, "scheduler-9")
        port.epoch = old
        with pytest.raises(Fenced):
            await port.report_placements([decided()])
        assert await records_of(room) == []
