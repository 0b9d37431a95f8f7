"""The calendar: entries that may be shown, and the demand of everything against the capacity."""

from dataclasses import replace as with_policy
from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.calendar import scheduling_calendar
from lcm.domain.errors import InvalidTimeslot
from lcm.domain.lablet.session import Batch
from lcm.domain.lablet.states import PENDING, READY, SCHEDULED, SessionStatus
from lcm.rest.scheduling import SchedulingCalendar
from support.control_plane import ONE_REGION
from support.scheduling import NEEDS, Classroom

ONE_WORKER: Policies = with_policy(
    ONE_REGION, scaling=with_policy(ONE_REGION.scaling, max_workers_per_region=1)
)


async def calendar(
    room: Classroom, *, hours: float = 4, step: float = 60, since: float = 0, hidden: str = ""
) -> SchedulingCalendar:
    begin = room.clock.now() + timedelta(hours=since)
    return await scheduling_calendar(
        room.plane.records,
        room.plane.policies,
        begin=begin,
        end=begin + timedelta(hours=hours),
        step=timedelta(minutes=step),
        is_shown=lambda session: session.id != hidden,
    )


async def test_a_class_is_one_entry_and_each_step_has_its_demand() -> None:
    async with Classroom(ONE_WORKER).running() as room:
        await room.add_worker("w1", size=NEEDS)
        slot = room.slot(in_minutes=110, minutes=60)
        for index in range(2):
            batch = Batch(id="b", name="monday", index=index, size=2)
            await room.add_session(f"s{index}", timeslot=slot, batch=batch)
        found = await calendar(room)
        (entry,) = found.entries
        assert (entry.name, entry.is_batch, entry.seats, entry.start, entry.end) == (
            "monday",
            True,
            2,
            slot.start,
            slot.end,
        )
        assert entry.counts == {PENDING: 2}
        assert [step.sessions for step in found.steps] == [0, 0, 2, 0]
        assert [step.demand.cpu for step in found.steps] == [0, 0, 2 * NEEDS.cpu, 0]
        assert [step.workers_needed for step in found.steps] == [0, 0, 2, 0]
        assert {step.workers_possible for step in found.steps} == {1}
        assert {step.capacity for step in found.steps} == {NEEDS}


async def test_a_session_that_runs_counts_until_it_is_removed() -> None:
    async with Classroom(ONE_WORKER).running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("s1", timeslot=room.slot(in_minutes=10, minutes=60))
        await room.clock.sleep(1)
        found = await calendar(room, hours=2, step=20)
        assert [step.sessions for step in found.steps] == [1, 1, 1, 1, 0, 0]
        assert [entry.counts for entry in found.entries] == [{SCHEDULED: 1}]


async def test_a_session_without_an_end_is_shown_without_one() -> None:
    async with Classroom(ONE_WORKER).running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("s1")
        await room.clock.sleep(1)
        assert (await calendar(room)).entries[0].end is None
        await room.plane.records.sessions.change(
            "s1", lambda each: replace(each, status=READY, ready_at=room.clock.now())
        )
        assert (await calendar(room)).entries[0].end == room.clock.now() + timedelta(minutes=60)


async def test_what_was_is_shown_and_its_demand_is_not() -> None:
    room = Classroom(ONE_WORKER)
    ended = await room.add_session("s1", timeslot=room.slot(in_minutes=40, minutes=30))
    await room.plane.records.sessions.purge(ended)
    over = {"status": SessionStatus.ARCHIVED, "ended_at": room.clock.now() + timedelta(minutes=75)}
    await room.plane.records.archived_sessions.add(replace(ended, **over))
    cancelled = replace(ended, id="s2", status=SessionStatus.TERMINATED, ended_at=room.clock.now())
    await room.plane.records.archived_sessions.add(cancelled)
    await room.clock.sleep(2 * 3600)
    found = await calendar(room, since=-2)
    assert [entry.id for entry in found.entries] == ["s1"]
    assert [step.at for step in found.steps] == [room.clock.now(), room.clock.now() + timedelta(hours=1)]


async def test_what_may_not_be_shown_counts_all_the_same() -> None:
    room = Classroom(ONE_WORKER)
    await room.add_session("s1", timeslot=room.slot(in_minutes=60))
    found = await calendar(room, hidden="s1")
    assert (found.entries, [step.sessions for step in found.steps]) == ([], [0, 1, 1, 0])


async def test_a_calendar_has_an_end_and_not_too_many_steps() -> None:
    room = Classroom()
    with pytest.raises(InvalidTimeslot):
        await calendar(room, hours=-1)
    with pytest.raises(InvalidTimeslot, match="400"):
        await calendar(room, hours=1000)
