"""Why a session waits, for what, and until when: replayed with the engine that places it."""

from datetime import timedelta

from hypothesis import given, settings
from msgspec.structs import replace

from lcm.domain.lablet.decision import Decision, Eta, NextEvent, Outcome
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.replay import snapshot_at
from lcm.domain.lablet.session import LabletSession, WaitCode
from lcm.domain.lablet.snapshot import Growth, PlacementWorker, Snapshot
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lifecycle import WorkerStatus
from support.lablets import GROWTH, METAL, NOON, at, claim, fleets, queues, session, worker


def decide(wanted: LabletSession, *parts: PlacementWorker | LabletSession, **changes: object) -> Decision:
    workers = tuple(part for part in parts if isinstance(part, PlacementWorker))
    sessions = tuple(part for part in parts if isinstance(part, LabletSession))
    snapshot = replace(Snapshot(workers=workers, sessions=sessions), **changes)
    return PlacementEngine.decide(snapshot, wanted, NOON)


def answer(decision: Decision) -> tuple[NextEvent | None, Eta | None]:
    assert decision.explanation is not None
    return decision.explanation.next_event, decision.explanation.eta


def test_a_session_that_waits_for_a_worker_says_which_when_and_how_many_are_ahead() -> None:
    coming = worker("lab-3", 99, status=WorkerStatus.STARTING, ready_at=at(12))
    made = decide(session("z", minute=9), coming, *(session(f"s{number}") for number in range(4)))
    assert made.text == "Waits for worker lab-3, expected at 12:12 UTC; 4 sessions are ahead."
    assert (made.position, made.ahead) == (5, 4)
    event, eta = answer(made)
    assert event == NextEvent(what="worker lab-3 is ready", at=at(12))
    assert eta is not None
    assert (eta.earliest, eta.likely) == (at(12), at(12))


def test_times_are_said_in_the_zone_of_the_booking_and_with_the_date_of_another_day() -> None:
    slot = Timeslot(start=at(20), end=at(80), zone="Europe/Berlin")
    coming = worker("lab-3", status=WorkerStatus.STARTING, ready_at=at(12))
    assert decide(session(timeslot=slot), coming).text == "Waits for worker lab-3, expected at 13:12."
    tomorrow = replace(coming, ready_at=at(24 * 60))
    assert "expected at 2026-01-02 12:00 UTC" in decide(session(), tomorrow).text


def test_sessions_that_are_placed_in_this_cycle_are_not_ahead() -> None:
    made = decide(session("z", 8, 9), worker(), session("a"), session("b"))
    assert (made.code, made.ahead) == (WaitCode.NO_ROOM, 0)


def test_the_expected_time_is_the_known_end_that_leaves_enough_room_after_those_ahead() -> None:
    claims = tuple(claim(2, ends_at=at(30 + 30 * number), number=number) for number in range(4))
    made = decide(session("z", 4, 9), worker(claims=claims), session("a", 2))
    event, eta = answer(made)
    assert event == NextEvent(what="room frees on worker w1", at=at(40))
    assert eta is not None
    assert (eta.earliest, eta.likely) == (at(70), at(100))
    assert eta.basis.endswith("room frees on worker w1")


def test_a_refused_launch_is_expected_when_it_is_allowed_again_plus_the_boot() -> None:
    growth = {"here": Growth(count=0, refusal="the cooldown has not passed", retry_at=at(5))}
    made = decide(session(), templates=(METAL,), growth=growth)
    assert made.text == (
        "Waits for room; no worker is launched until 12:05 UTC, because the cooldown has not passed."
    )
    event, eta = answer(made)
    assert event == NextEvent(what="region here may gain workers", at=at(5))
    assert eta is not None
    assert eta.likely == at(30)


def test_a_session_in_a_region_that_is_full_for_good_has_no_expected_time() -> None:
    growth = {"here": Growth(count=0, max_workers=1, refusal="MAX_WORKERS is reached")}
    assert answer(decide(session(), worker(claims=(claim(8),)), templates=(METAL,), growth=growth)) == (
        None,
        None,
    )


def test_a_booking_waits_for_its_window_and_a_failed_placement_for_its_next_try() -> None:
    slot = Timeslot(start=at(60), end=at(90))
    booked = decide(session(status=SessionStatus.PENDING, timeslot=slot), worker())
    assert booked.text == "Waits for its window, which opens at 12:25 UTC."
    event, eta = answer(booked)
    assert event == NextEvent(what="its window opens", at=at(25))
    assert eta is not None
    assert eta.likely == at(25)
    event, _ = answer(decide(session(next_try_at=at(1)), worker()))
    assert event == NextEvent(what="its placement is tried again", at=at(1))


def test_a_new_worker_is_expected_after_its_boot() -> None:
    event, eta = answer(decide(session(), templates=(METAL,), growth=GROWTH))
    assert event == NextEvent(what="a new worker is ready", at=at(25))
    assert eta is not None
    assert eta.likely == at(25)


def test_a_worker_may_come_as_soon_as_half_of_those_before_and_likely_comes_as_nine_of_ten_did() -> None:
    coming = worker("lab-3", status=WorkerStatus.STARTING, early_at=at(6), ready_at=at(12))
    _, eta = answer(decide(session(), coming))
    assert eta is not None
    assert (eta.earliest, eta.likely) == (at(6), at(12))
    _, eta = answer(decide(session(), replace(coming, early_at=at(-1))))
    assert eta is not None
    assert (eta.earliest, eta.likely) == (NOON, at(12))


def test_a_new_worker_is_expected_as_its_template_was_ready_before() -> None:
    known = replace(METAL, early_boot=timedelta(minutes=10), boot=timedelta(minutes=40))
    made = decide(session(), templates=(known,), growth=GROWTH)
    assert made.text == "Waits for a new worker, expected at 12:40 UTC."
    event, eta = answer(made)
    assert event == NextEvent(what="a new worker is ready", at=at(40))
    assert eta is not None
    assert (eta.earliest, eta.likely) == (at(10), at(40))


@settings(max_examples=50)
@given(fleets, queues)
def test_at_the_expected_time_the_engine_places_the_session(
    workers: list[PlacementWorker], sessions: list[LabletSession]
) -> None:
    ending = [
        replace(view, claims=tuple(replace(each, ends_at=at(7 * number)) for each in view.claims))
        for number, view in enumerate(workers)
    ]
    snapshot = Snapshot(workers=tuple(ending), sessions=tuple(sessions))
    for each in sessions[:3]:
        made = PlacementEngine.decide(snapshot, each, NOON)
        _, eta = answer(made)
        if eta is None or made.outcome is Outcome.SCALE_UP:
            continue
        assert NOON <= eta.earliest <= eta.likely
        then = snapshot_at(snapshot, eta.likely + timedelta(seconds=1), NOON)
        later = PlacementEngine.plan(then, eta.likely + timedelta(seconds=1)).decisions[each.id]
        assert later.outcome in (Outcome.ASSIGN, Outcome.SCALE_UP) or later.nomination is not None
