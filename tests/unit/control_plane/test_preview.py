"""A preview is the plan of the scheduler with seats that do not exist; a forecast is what a booking meets."""

from dataclasses import replace as with_policy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.explain_session import explain_session
from lcm.control_plane.queries.forecast import forecast, refuse_overbooking
from lcm.control_plane.queries.preview import preview_seats
from lcm.control_plane.queries.scheduling import scheduling_snapshot
from lcm.control_plane.records.definitions import StoredDefinition
from lcm.core.configuration import read_yaml
from lcm.domain.capacity import Capacity
from lcm.domain.errors import Conflict, InvalidTimeslot, NoCapacityInSlot, UnknownReference
from lcm.domain.lablet.decision import Outcome
from lcm.domain.lablet.definition import DefinitionStatus, Demand
from lcm.domain.lablet.forecast import FitOfSlot
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import Batch, WaitCode
from lcm.domain.lifecycle import DRAINING, RUNNING, STARTING, STOPPED, WorkerStatus
from lcm.domain.pause import PauseReason
from lcm.rest.scheduling import PreviewRequest, SchedulingPreview
from support.control_plane import ONE_REGION
from support.fleet import TEMPLATES
from support.scheduling import NEEDS, Classroom
from support.virtual_time import VirtualTimeLoop
from unit.domain.lablet.test_definition import define


async def seeded(policies: Policies = ONE_REGION) -> Classroom:
    room = Classroom(policies)
    await room.plane.records.templates.seed(read_yaml(TEMPLATES))
    return room


async def previewed(room: Classroom, **request: object) -> SchedulingPreview:
    asked = replace(PreviewRequest(needs=NEEDS), **request)
    return await preview_seats(room.plane.records, room.plane.policies, asked)


async def test_a_preview_names_the_workers_that_would_be_used_started_and_launched_and_their_price() -> None:
    room = await seeded()
    await room.add_worker("up", size=NEEDS)
    await room.add_worker("down", size=NEEDS, status=STOPPED, is_ready=False)
    found = await previewed(room, count=3)
    assert [seat.worker_name for seat in found.seats] == ["up", "down", None]
    assert (found.placed, found.waiting, found.impossible) == (1, 2, 0)
    assert found.brought_back == ("down",)
    assert [(each.template, each.count, each.usd_per_hour) for each in found.launches] == [
        ("kvm-small", 1, 0.21168)
    ]
    assert found.usd_per_hour == round(3.9641 + 0.21168, 6)
    assert found.usd_total is None
    assert found.text.startswith("1 of 3 seats get a worker that is up; the next: waits for worker down")
    assert [each.worker_id for each in found.candidates] == ["up"]
    assert [len(each.reasons) for each in found.workers] == [1, 0]
    assert found.verdict is found.forecast.verdict is FitOfSlot.FITS


async def test_a_price_that_is_not_known_is_not_nothing() -> None:
    room = await seeded()
    await room.add_worker("down", size=NEEDS, status=STOPPED, is_ready=False)
    await room.plane.records.workers.change("down", lambda each: replace(each, template_name="imported"))
    found = await previewed(room, timeslot=room.slot(in_minutes=10))
    assert (found.brought_back, found.usd_per_hour, found.usd_total) == (("down",), None, None)
    nothing_to_start = await previewed(await seeded_with_room())
    assert (nothing_to_start.usd_per_hour, nothing_to_start.launches) == (0.0, ())


async def seeded_with_room() -> Classroom:
    room = await seeded()
    await room.add_worker("up")
    return room


async def test_a_preview_of_a_timeslot_is_the_plan_at_the_time_at_which_its_window_opens() -> None:
    room = await seeded()
    await room.add_worker("w1", size=NEEDS)
    await room.add_session("over by then", timeslot=room.slot(in_minutes=50, minutes=60))
    found = await previewed(room, timeslot=room.slot(in_minutes=600), count=2)
    assert [seat.outcome for seat in found.seats] == [Outcome.ASSIGN, Outcome.SCALE_UP]
    assert found.usd_total == pytest.approx(0.2117)
    opens = room.clock.now() + (room.slot(in_minutes=600).start - room.clock.now()) - ONE_REGION.times.lead
    assert [seat.eta and seat.eta.likely for seat in found.seats] == [
        opens,
        opens + ONE_REGION.times.worker_boot,
    ]


async def test_a_preview_records_nothing() -> None:
    room = await seeded_with_room()
    before = await scheduling_snapshot(room.plane.records, room.plane.policies)
    await previewed(room, count=30)
    assert await scheduling_snapshot(room.plane.records, room.plane.policies) == before


async def test_a_definition_is_previewed_and_what_cannot_be_booked_is_refused() -> None:
    room = await seeded_with_room()
    made = define()
    await room.plane.records.definitions.add(StoredDefinition(id=made.id, definition=made))
    found = await previewed(room, needs=None, definition_id=made.id)
    assert found.placed == 1
    past = room.slot(in_minutes=-10)
    for request, error in (
        ({"needs": None, "definition_id": made.id, "timeslot": past}, InvalidTimeslot),
        ({"timeslot": past}, InvalidTimeslot),
        ({"aws_region": "nowhere"}, UnknownReference),
    ):
        with pytest.raises(error):
            await previewed(room, **request)
    old = replace(made, id="d2", name="old", status=DefinitionStatus.DEPRECATED)
    await room.plane.records.definitions.add(StoredDefinition(id="d2", definition=old))
    with pytest.raises(Conflict):
        await previewed(room, needs=None, definition_id="d2")


async def test_an_impossible_lab_is_called_so() -> None:
    room = await seeded_with_room()
    found = await previewed(room, needs=Capacity(cpu=500), count=2)
    assert (found.impossible, found.verdict) == (2, FitOfSlot.OVER)
    assert "large enough for 500 CPUs" in found.text


async def test_the_last_seat_that_waits_without_a_worker_in_sight_gets_an_estimate() -> None:
    policies = with_policy(ONE_REGION, scaling=with_policy(ONE_REGION.scaling, max_workers_per_region=1))
    async with Classroom(policies).running() as room:
        await room.add_worker("w1", size=Capacity(cpu=8, memory_gb=16, storage_gb=20, nodes=8))
        for number in range(2):
            await room.add_session(f"s{number}", timeslot=room.slot(in_minutes=1, minutes=50 + 10 * number))
        await room.clock.sleep(2)
        found = await previewed(room, count=2)
        minutes = [
            seat.eta and (seat.eta.likely - room.clock.now()).total_seconds() // 60 for seat in found.seats
        ]
        assert minutes == [None, 70]
        assert found.seats[0].code is WaitCode.SCALE_UP_REFUSED
        assert (await previewed(room, count=3)).seats[-1].eta is None


statuses = st.sampled_from([RUNNING, RUNNING, STARTING, STOPPED, DRAINING])
fleets = st.lists(st.tuples(statuses, st.integers(1, 3)), max_size=4)


@settings(max_examples=25, deadline=None)
@given(fleets, st.integers(0, 3), st.integers(1, 6), st.booleans())
def test_a_preview_of_seats_is_the_plan_after_they_are_created(
    fleet: list[tuple[WorkerStatus, int]], waiting: int, count: int, is_whole: bool
) -> None:
    async def compare() -> None:
        room = await seeded()
        for number, (status, factor) in enumerate(fleet):
            size = Capacity(cpu=4 * factor, memory_gb=8 * factor, storage_gb=10 * factor, nodes=4 * factor)
            await room.add_worker(f"w{number}", size=size, status=status, is_ready=status is RUNNING)
            await room.plane.records.workers.change(
                f"w{number}",
                lambda each: replace(each, pause=replace(each.pause, reason=PauseReason.IDLE_TIMEOUT)),
            )
        for number in range(waiting):
            await room.add_session(f"s{number}")
        await room.clock.sleep(1)
        found = await previewed(room, count=count, is_all_or_nothing=is_whole)
        for number in range(count):
            batch = Batch(id="b", index=number, size=count, is_all_or_nothing=is_whole)
            await room.add_session(f"t{number}", batch=batch if count > 1 else None)
        snapshot = await scheduling_snapshot(room.plane.records, room.plane.policies)
        made = PlacementEngine.plan(snapshot, room.clock.now())
        for number, seat in enumerate(found.seats):
            decision = made.decisions[f"t{number}"]
            counted_on = decision.nomination.worker_id if decision.nomination is not None else None
            assert (seat.outcome, seat.code, seat.text) == (decision.outcome, decision.code, decision.text)
            assert seat.worker_id == (decision.worker_id or counted_on)

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(compare())
    finally:
        loop.close()


async def test_a_booking_says_when_its_window_opens_and_whether_it_fits() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS)
        booking = await room.add_session("s1", timeslot=room.slot(in_minutes=600))
        found = await explain_session(room.plane.records, room.plane.policies, booking)
        assert found.code is WaitCode.WINDOW_NOT_OPEN
        assert found.text == (
            "Waits for its window, which opens at 09:25 UTC. It fits: 1 of 10 possible workers is needed."
        )
        assert found.forecast is not None
        assert found.eta is not None


async def test_overbooking_is_refused_only_if_it_is_so_configured_and_the_next_room_is_named() -> None:
    policies = with_policy(
        ONE_REGION,
        scaling=with_policy(ONE_REGION.scaling, max_workers_per_region=1),
        refuses_overbooking=True,
    )
    room = await seeded(policies)
    await room.add_worker("w1", size=NEEDS)
    await room.add_session("s1", timeslot=room.slot(in_minutes=600))
    found = await forecast(
        room.plane.records,
        policies,
        Demand(needs=NEEDS),
        seats=1,
        timeslot=room.slot(in_minutes=600),
        max_minutes=60,
    )
    assert found.verdict is FitOfSlot.OVER
    with pytest.raises(NoCapacityInSlot, match=r"no_capacity_in_slot: .*T11:15:00"):
        refuse_overbooking(policies, found)
    refuse_overbooking(ONE_REGION, found)
    mine = await forecast(
        room.plane.records,
        policies,
        Demand(needs=NEEDS),
        seats=1,
        timeslot=room.slot(in_minutes=600),
        max_minutes=60,
        without=("s1",),
    )
    assert mine.verdict is FitOfSlot.FITS


async def test_a_session_without_an_end_is_taken_to_last_as_long_as_it_may() -> None:
    policies = with_policy(ONE_REGION, scaling=with_policy(ONE_REGION.scaling, max_workers_per_region=1))
    async with Classroom(policies).running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("s1")
        await room.clock.sleep(1)
        assert (await room.worker("w1")).claims[0].ends_at is None
        verdicts = [
            (
                await forecast(
                    room.plane.records,
                    policies,
                    Demand(needs=NEEDS),
                    seats=1,
                    timeslot=room.slot(in_minutes=minutes),
                    max_minutes=60,
                )
            ).verdict
            for minutes in (60, 76)
        ]
        assert verdicts == [FitOfSlot.OVER, FitOfSlot.FITS]


async def test_a_preview_waits_for_no_end_that_the_scheduler_does_not_know() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1", size=NEEDS)
        await room.add_session("s1")
        await room.clock.sleep(1)
        await room.plane.records.sessions.change("s1", lambda each: replace(each, max_duration_minutes=5))
        assert (await room.worker("w1")).claims[0].ends_at is None
        (seat,) = (await previewed(room)).seats
        assert (seat.outcome, seat.code) == (Outcome.SCALE_UP, WaitCode.WAITS_FOR_WORKER)
