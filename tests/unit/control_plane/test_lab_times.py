"""How long labs of a topology took is how early the next one is started: learned from the sessions."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.lablets.batches import create_batch
from lcm.control_plane.commands.lablets.create_session import create_session
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.session_sweep import SessionSweep
from lcm.control_plane.queries.explain_session import explain_session
from lcm.control_plane.queries.topology import analyse_definition
from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.lab_times import TOPOLOGIES, LabTimes
from lcm.core.health import Health
from lcm.domain.errors import Conflict
from lcm.domain.lablet.definition import DefinitionOptions
from lcm.domain.lablet.forecast import FitOfSlot
from lcm.domain.lablet.session import LabletSession, SessionHistoryEntry
from lcm.domain.lablet.session_changes import instantiate
from lcm.domain.lablet.states import ARCHIVED, INSTANTIATING, PENDING_SCHEDULING, READY, RUNNING, SCHEDULED
from support.core import running
from support.lablets import at, session
from support.scheduling import Classroom
from unit.domain.lablet.test_definition import define
from unit.domain.lablet.test_topology import BRANCH_OFFICE

HASH = define().lab_yaml_hash


def ready_after(minutes: float, *, ready_at: float = 0, topology: str = HASH) -> LabletSession:
    """A session whose lab took so long, and was ready so many minutes after noon."""
    steps = ((INSTANTIATING, at(ready_at - minutes)), (READY, at(ready_at)), (RUNNING, at(ready_at)))
    history = tuple(
        SessionHistoryEntry(source=None, target=status, by="c", reason="", at=moment)
        for status, moment in steps
    )
    name = f"{topology}-{minutes}-{ready_at}"
    return session(name, lab_yaml_hash=topology, state_history=history, status=RUNNING, ready_at=at(ready_at))


def times_of(sessions: Iterator[LabletSession] | list[LabletSession]) -> LabTimes:
    times = LabTimes()
    for each in sessions:
        times.learn(each)
    return times


def _become(session: LabletSession, before: LabletSession) -> LabletSession:
    return replace(session, version=before.version)


class Labs(Classroom):
    """A control plane in which labs came up before."""

    def remember(self, *minutes: float) -> None:
        for number, each in enumerate(minutes):
            self.plane.records.lab_times.learn(ready_after(each, ready_at=number))

    async def book(self, *, in_minutes: float, options: DefinitionOptions | None = None) -> LabletSession:
        definition = define(options=options or DefinitionOptions())
        slot = self.slot(in_minutes=in_minutes, minutes=30)
        records, policies = self.plane.records, self.plane.policies
        return await create_session(records, policies, definition, owner_id="ann", timeslot=slot)


async def labs() -> Labs:
    room = Labs()
    await room.add_worker("w1")
    return room


def test_of_twenty_labs_nineteen_were_ready_in_the_time_that_is_expected() -> None:
    times = times_of(ready_after(minutes, ready_at=minutes) for minutes in range(1, 21))
    assert times.expected(HASH) == timedelta(minutes=19)
    assert times.expected("another") == timedelta()


def test_of_fewer_than_three_labs_nothing_is_concluded() -> None:
    assert times_of([ready_after(9), ready_after(8)]).expected(HASH) == timedelta()


def test_a_record_that_is_read_again_counts_once_and_the_oldest_labs_are_forgotten() -> None:
    times = times_of([ready_after(60, ready_at=0)] * 30)
    assert times.expected(HASH) == timedelta()
    for number in range(20):
        times.learn(ready_after(5, ready_at=1 + number))
    assert times.expected(HASH) == timedelta(minutes=5)


def test_the_topologies_that_were_used_last_are_remembered() -> None:
    times = times_of(
        ready_after(5, ready_at=number, topology=f"t{topology}")
        for topology in range(TOPOLOGIES + 1)
        for number in range(3)
    )
    assert times.expected("t0") == timedelta()
    assert times.expected(f"t{TOPOLOGIES}") == times.expected("t1") == timedelta(minutes=5)


async def test_the_analysis_of_a_definition_says_in_which_time_half_of_its_labs_were_ready() -> None:
    room = await labs()
    records, policies = room.plane.records, room.plane.policies
    definition = define()
    await records.definitions.keep_topology(BRANCH_OFFICE)
    await records.definitions.add(StoredDefinition(id=definition.id, definition=definition))
    assert (await analyse_definition(records, policies, definition.id)).median_ready_seconds is None
    room.remember(12, 9, 11)
    assert (await analyse_definition(records, policies, definition.id)).median_ready_seconds == 11 * 60


async def test_a_lab_that_takes_longer_is_started_so_much_earlier() -> None:
    room = await labs()
    room.remember(12, 9, 11)
    booked = await room.book(in_minutes=30)
    assert booked.timeslot is not None
    scheduled = replace(booked, status=SCHEDULED, worker_id="w1")
    start = booked.timeslot.start
    with pytest.raises(Conflict, match="not due"):
        instantiate(scheduled, now=start - timedelta(minutes=12, seconds=1))
    assert instantiate(scheduled, now=start - timedelta(minutes=12)).status is INSTANTIATING
    told = await explain_session(room.plane.records, room.plane.policies, scheduled)
    due, begins = ((start - timedelta(minutes=each)).strftime("%H:%M") for each in (12, 0))
    assert told.text == f"It has worker w1, on which its lab is started at {due} UTC for {begins} UTC."


async def test_a_lab_that_is_started_earlier_needs_its_room_earlier_in_forecasts_too() -> None:
    room = Labs()
    await room.add_worker("w1", size=define().demand.needs)
    await room.book(in_minutes=60)
    booked = await room.book(in_minutes=110)
    longer = await room.plane.records.sessions.change(
        booked.id, lambda current: replace(current, lab_lead=timedelta(minutes=12))
    )
    found = [
        await explain_session(room.plane.records, room.plane.policies, each) for each in (booked, longer)
    ]
    assert [each.forecast and each.forecast.verdict for each in found] == [FitOfSlot.FITS, FitOfSlot.OVER]


async def test_what_was_learned_after_the_booking_counts_when_the_window_opens_and_lowers_nothing() -> None:
    room = await labs()
    slow = await room.book(in_minutes=90, options=DefinitionOptions(boot_lead_time_minutes=20))
    usual = await room.book(in_minutes=90)
    assert [each.lab_lead for each in (slow, usual)] == [timedelta(minutes=20), timedelta()]
    room.remember(12, 9, 11)
    await room.clock.sleep(60 * 60)
    await move_windows(room.plane.records, room.plane.policies, by="scheduler")
    opened = [await room.session(each.id) for each in (slow, usual)]
    assert {each.status for each in opened} == {PENDING_SCHEDULING}
    assert [each.lab_lead for each in opened] == [timedelta(minutes=20), timedelta(minutes=12)]


async def test_no_lab_is_started_before_its_window_opens_however_long_it_takes() -> None:
    room = await labs()
    room.remember(50, 50, 50)
    stated = DefinitionOptions(boot_lead_time_minutes=240)
    booked = [await room.book(in_minutes=90), await room.book(in_minutes=90, options=stated)]
    assert {each.lab_lead for each in booked} == {timedelta(minutes=35)}


async def test_every_seat_of_a_class_is_started_as_early_as_its_lab_needs() -> None:
    room = await labs()
    room.remember(12, 9, 11)
    batch = await create_batch(
        room.plane.records,
        room.plane.policies,
        define(),
        name="class",
        owners=("ann", "bob"),
        by="eve",
        creator_id="eve",
        is_all_or_nothing=False,
        timeslot=room.slot(in_minutes=60, minutes=30),
    )
    seats = [each for each in await room.plane.records.sessions.list_all() if each.batch is not None]
    assert [each.lab_lead for each in seats] == [timedelta(minutes=12)] * len(batch.owners)


async def test_a_lab_of_this_process_counts_when_it_is_ready() -> None:
    room = await labs()
    for number, minutes in enumerate((12, 9, 11)):
        done = ready_after(minutes, ready_at=number)
        before = replace(done, status=INSTANTIATING, state_history=done.state_history[:1], ready_at=None)
        ready = replace(done, status=READY, state_history=done.state_history[:2])
        await room.plane.records.sessions.add(before)
        await room.plane.records.sessions.change(done.id, partial(_become, ready))
    assert (await room.book(in_minutes=90)).lab_lead == timedelta(minutes=12)


async def test_a_control_plane_that_starts_again_learns_from_live_and_archived_sessions() -> None:
    room = await labs()
    records, now = room.plane.records, room.clock.now()
    for number, minutes in enumerate((12, 9, 11)):
        ended = replace(ready_after(minutes, ready_at=number), status=ARCHIVED, ended_at=now)
        await (records.sessions if number else records.archived_sessions).add(ended)
    again = Labs(store=room.store)
    assert (await again.book(in_minutes=90)).lab_lead == timedelta()
    plane = again.plane
    sweep = SessionSweep(plane.records, plane.caches, plane.policies, Health(again.clock))
    async with running(sweep):
        await again.clock.sleep(1)
        assert (await again.book(in_minutes=90)).lab_lead == timedelta(minutes=12)
