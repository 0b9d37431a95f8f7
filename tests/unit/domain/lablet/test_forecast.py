"""Whether a timeslot has room: what is booked, on the workers that exist and that may be added."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.forecast import FitOfSlot, Forecast, forecast, seats_of
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Growth, PlacementWorker, Snapshot
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus
from support.lablets import LARGE, NOON, at, claim, session, size, worker

FITS, TIGHT, OVER = FitOfSlot.FITS, FitOfSlot.TIGHT, FitOfSlot.OVER


def slot(start: float, end: float) -> Timeslot:
    return Timeslot(start=at(start), end=at(end))


def booked(name: str, when: Timeslot, cpu: float = 8) -> LabletSession:
    return session(name, cpu, timeslot=when, status=SessionStatus.PENDING)


def ask(
    when: Timeslot | None,
    *parts: PlacementWorker | LabletSession,
    seats: int = 1,
    cpu: float = 8,
    growth: int | dict[str, Growth] = 0,
) -> Forecast:
    snapshot = Snapshot(
        workers=tuple(part for part in parts if isinstance(part, PlacementWorker)),
        sessions=tuple(part for part in parts if isinstance(part, LabletSession)),
        templates=(LARGE,),
        growth=growth if isinstance(growth, dict) else {"here": Growth(count=growth)},
    )
    wanted = seats_of(
        Demand(needs=size(cpu)), seats, timeslot=when, max_minutes=60, now=NOON, lead=snapshot.times.lead
    )
    return forecast(snapshot, wanted, NOON)


def test_a_slot_fits_on_the_workers_that_exist_up_or_not() -> None:
    found = ask(slot(600, 660), worker(status=WorkerStatus.STOPPED))
    assert (found.verdict, found.workers_needed, found.workers_possible) == (FITS, 1, 1)
    assert found.text == "It fits: 1 of 1 possible worker is needed."


def test_a_slot_is_tight_if_every_worker_that_may_be_added_is_needed() -> None:
    assert ask(slot(600, 660), seats=3, growth=3).verdict is TIGHT
    assert ask(slot(600, 660), seats=2, growth=3).verdict is FITS


def test_a_slot_is_over_if_sessions_lack_room_and_the_nearest_that_fit_are_named() -> None:
    taken = booked("a", slot(600, 660))
    found = ask(slot(630, 690), worker(), taken)
    assert (found.verdict, found.workers_needed, found.workers_possible) == (OVER, 2, 1)
    assert found.text == "It does not fit: at 22:25 UTC, 1 of 2 sessions has no room on 1 possible worker."
    assert found.nearest == (slot(675, 735),)


def test_back_to_back_without_a_gap_needs_both() -> None:
    before = booked("a", slot(540, 600))
    assert ask(slot(600, 660), worker(), before).verdict is OVER
    assert ask(slot(614, 674), worker(), before).verdict is OVER
    assert ask(slot(615, 675), worker(), before).verdict is FITS


def test_sessions_that_overlap_the_slot_but_not_each_other_share_a_worker() -> None:
    first, second = booked("a", slot(600, 640)), booked("b", slot(660, 700))
    assert ask(slot(600, 720), worker(), worker("w2"), first, second).verdict is FITS


def test_claims_count_until_they_are_torn_down() -> None:
    view = worker(claims=(claim(8, ends_at=at(100)),))
    assert ask(slot(110, 170), view).verdict is OVER
    assert ask(slot(115, 175), view).verdict is FITS
    kept = worker(claims=(replace(claim(8, ends_at=at(100)), is_retained=True),))
    assert ask(slot(600, 660), kept).verdict is OVER


@pytest.mark.parametrize(
    "changes",
    [
        {"status": WorkerStatus.FAILED},
        {"status": WorkerStatus.TERMINATING},
        {"desired_status": DesiredStatus.TERMINATED},
        {"status": WorkerStatus.UNKNOWN},
    ],
)
def test_a_worker_that_is_gone_serves_nothing(changes: dict[str, object]) -> None:
    assert ask(slot(600, 660), replace(worker(), **changes)).verdict is OVER


def test_a_region_that_may_not_grow_now_may_grow_until_the_slot() -> None:
    resting = {"here": Growth(count=0, max_workers=1, refusal="cooldown", retry_at=at(5))}
    assert ask(slot(600, 660), growth=resting).verdict is TIGHT
    assert ask(None, growth=resting).verdict is OVER
    full = {"here": Growth(count=0, max_workers=1, refusal="full")}
    assert ask(slot(600, 660), growth=full).verdict is OVER


def test_a_start_as_soon_as_possible_is_judged_from_now_on() -> None:
    assert ask(None, worker()).verdict is FITS
    assert ask(None, worker(), booked("a", slot(30, 90))).verdict is OVER
    assert ask(None, worker(), booked("a", slot(75, 90))).verdict is FITS
    found = ask(None, worker(), booked("a", slot(30, 90)))
    assert found.nearest == (Timeslot(start=at(105), end=at(165)),)


def test_slots_are_offered_up_to_the_last_day_that_can_be_booked() -> None:
    far = booked("a", slot(0, 90 * 24 * 60 - 10))
    assert ask(slot(600, 660), worker(), far).nearest == ()


def test_what_fits_no_worker_at_all_is_over_and_no_other_slot_is_named() -> None:
    found = ask(slot(600, 660), worker(), cpu=500)
    assert (found.verdict, found.nearest) == (OVER, ())


def test_only_the_region_that_is_required_counts() -> None:
    growth = {"here": Growth(count=1), "there": Growth(count=5)}
    snapshot = Snapshot(workers=(worker(region="there"),), templates=(LARGE,), growth=growth)
    demand = Demand(needs=size(8), region="here")
    wanted = seats_of(demand, 1, timeslot=slot(600, 660), max_minutes=60, now=NOON, lead=snapshot.times.lead)
    found = forecast(snapshot, wanted, NOON)
    assert (found.verdict, found.workers_needed, found.workers_possible) == (TIGHT, 1, 1)


bookings = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 8)), max_size=8).map(
    lambda rows: [
        booked(f"b{number}", slot(600 + 15 * start, 600 + 15 * (start + length)), cpu)
        for number, (start, length, cpu) in enumerate(rows)
    ]
)


@settings(max_examples=60)
@given(bookings, st.integers(1, 3), st.integers(0, 2), st.integers(0, 20))
def test_every_slot_that_is_offered_fits_whatever_the_order_of_sessions(
    sessions: list[LabletSession], seats: int, growth: int, start: int
) -> None:
    when = slot(600 + 15 * start, 660 + 15 * start)
    found = ask(when, worker(), *sessions, seats=seats, growth=growth)
    for offered in found.nearest:
        assert offered.duration == timedelta(minutes=60)
        assert ask(offered, worker(), *sessions, seats=seats, growth=growth).verdict is not OVER
    assert found == ask(when, worker(), *sessions[::-1], seats=seats, growth=growth)
