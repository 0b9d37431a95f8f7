"""A session moves only along the rows of its table, and an ended one has left nothing behind."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.errors import Conflict, IllegalTransition, InvalidTimeslot
from lcm.domain.lablet import session as sessions
from lcm.domain.lablet import session_changes
from lcm.domain.lablet.claim import Claim, Reserve, allocatable, allocated, ports_of
from lcm.domain.lablet.definition import Collect, DefinitionOptions, deprecate
from lcm.domain.lablet.session import LabletSession, Nomination, SessionDesiredStatus, WaitCode
from lcm.domain.lablet.states import (
    ENDED,
    MEANING,
    OWNS_LAB,
    TRANSITIONS,
    EndReason,
    SessionStatus,
    allowed_targets,
    is_allowed,
)
from lcm.domain.lablet.timeslot import Timeslot
from unit.domain.lablet.test_definition import define

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
SLOT = Timeslot(start=NOON + timedelta(hours=2), end=NOON + timedelta(hours=3))
Step = Callable[[LabletSession], LabletSession]


def waiting(timeslot: Timeslot | None = None) -> LabletSession:
    definition = define(options=DefinitionOptions(collect=Collect.CONFIGS))
    return sessions.create_session(definition, session_id="s1", owner_id="ann", now=NOON, timeslot=timeslot)


def placed(session: LabletSession) -> LabletSession:
    begun = session_changes.begin_placement(session, "w1", epoch=1, now=LATER)
    return session_changes.schedule(begun, attempt=begun.attempt, ports={"r1": 2000}, now=LATER)


def stopped(session: LabletSession) -> LabletSession:
    return session_changes.stop(session, EndReason.COMPLETED, reason="over", now=LATER)


def unplaced(session: LabletSession, why: EndReason) -> LabletSession:
    return session_changes.end_unplaced(ask(session, why), now=LATER)


def ask(session: LabletSession, why: EndReason, by: str = "ann") -> LabletSession:
    return session_changes.request_end(session, why, by=by, reason=str(why), now=LATER)


STEPS: dict[str, Step] = {
    "open": lambda s: session_changes.open_window(s, now=SLOT.start),
    "cancel": lambda s: unplaced(s, EndReason.CANCELLED),
    "expire": lambda s: unplaced(s, EndReason.EXPIRED),
    "reject": lambda s: unplaced(s, EndReason.FAILED),
    "place": placed,
    "lose": lambda s: session_changes.unschedule(s, reason="lost", now=LATER, is_worker_lost=True),
    "drain": lambda s: session_changes.unschedule(s, reason="drained", now=LATER, is_worker_lost=False),
    "instantiate": lambda s: session_changes.instantiate(s, now=SLOT.start),
    "ready": lambda s: session_changes.become_ready(s, now=LATER),
    "run": lambda s: session_changes.run(s, now=SLOT.start),
    "ask": lambda s: ask(s, EndReason.CANCELLED),
    "collect": lambda s: session_changes.collect(s, now=LATER),
    "grade": lambda s: session_changes.grade(s, now=LATER),
    "stop": stopped,
    "finish": lambda s: session_changes.finish(s, is_lab_gone=True, claim=None, now=LATER),
}
ROUTE = ("place", "instantiate", "ready", "run", "collect", "grade", "stop", "finish")


def after(*names: str, timeslot: Timeslot | None = None) -> LabletSession:
    session = waiting(timeslot)
    for name in names:
        session = STEPS[name](session)
    return session


def in_every_status() -> dict[SessionStatus, LabletSession]:
    found = {SessionStatus.PENDING: waiting(SLOT), SessionStatus.PENDING_SCHEDULING: waiting()}
    for length in range(1, len(ROUTE) + 1):
        session = after(*ROUTE[:length])
        found[session.status] = session
    for name in ("cancel", "expire", "reject"):
        session = after("open", name, timeslot=SLOT)
        found[session.status] = session
    return found


def test_every_status_has_a_meaning_and_a_session_can_reach_it() -> None:
    assert set(MEANING) == set(SessionStatus) == set(in_every_status())


def test_no_row_is_given_twice_and_ended_statuses_are_final() -> None:
    pairs = [(row.source, row.target) for row in TRANSITIONS]
    assert len(pairs) == len(set(pairs))
    assert not any(source in ENDED for source, _ in pairs)
    assert all(row.because for row in TRANSITIONS)


def test_every_row_of_the_table_is_a_step_and_every_other_pair_is_refused() -> None:
    stopping = [after("place", "instantiate", "ready", "run") for _ in EndReason]
    sources = [
        *in_every_status().values(),
        *(
            session_changes.stop(each, why, reason="over", now=LATER)
            for each, why in zip(stopping, EndReason, strict=True)
        ),
    ]
    taken = set()
    for source in sources:
        for step in STEPS.values():
            try:
                target = step(source)
            except (IllegalTransition, Conflict):
                continue
            if target.status is not source.status:
                taken.add((source.status, target.status))
    assert taken == {(row.source, row.target) for row in TRANSITIONS}


@given(st.booleans(), st.lists(st.sampled_from(sorted(STEPS)), max_size=14))
def test_every_step_follows_a_row_or_is_refused_and_an_ended_session_never_changes(
    is_booked: bool, names: list[str]
) -> None:
    session = waiting(SLOT if is_booked else None)
    for name in names:
        try:
            following = STEPS[name](session)
        except (IllegalTransition, Conflict):
            continue
        if following.status is not session.status:
            assert is_allowed(session.status, following.status, is_worker_lost=name == "lose")
            assert following.generation > session.generation
        assert session.status not in ENDED or following == session
        session = following
    assert len(session.state_history) <= session_changes.HISTORY_LIMIT
    assert msgspec.json.decode(msgspec.json.encode(session), type=LabletSession) == session


@pytest.mark.parametrize("name", [name for name in STEPS if name != "ask"])
def test_a_step_from_a_status_without_the_row_is_an_illegal_transition(name: str) -> None:
    for status in ENDED:
        session = in_every_status()[status]
        with pytest.raises((IllegalTransition, Conflict)):
            STEPS[name](session)
    with pytest.raises(IllegalTransition) as refused:
        session_changes.become_ready(waiting(), now=NOON)
    assert refused.value.allowed == sorted(allowed_targets(SessionStatus.PENDING_SCHEDULING))


def test_a_session_with_a_later_timeslot_waits_for_its_window() -> None:
    session = waiting(SLOT)
    assert session.status is SessionStatus.PENDING
    with pytest.raises(Conflict, match="window opens"):
        session_changes.open_window(session, now=SLOT.start - timedelta(minutes=36))
    opened = session_changes.open_window(session, now=SLOT.start - timedelta(minutes=35))
    assert opened.status is SessionStatus.PENDING_SCHEDULING


def test_a_session_of_a_deprecated_definition_is_refused() -> None:
    with pytest.raises(Conflict, match="newest version"):
        sessions.create_session(deprecate(define()), session_id="s", owner_id="ann", now=NOON)


def test_a_session_keeps_its_needs_when_its_definition_is_edited() -> None:
    definition = define()
    session = sessions.create_session(definition, session_id="s", owner_id="ann", now=NOON)
    assert session.demand == definition.demand
    assert session.lab_yaml_hash == definition.lab_yaml_hash


def test_a_timeslot_is_missed_only_without_a_nomination_in_time() -> None:
    session = after("open", timeslot=SLOT)
    late = SLOT.start + timedelta(minutes=6)
    coming = session_changes.nominate(session, Nomination(worker_id="w", ready_at=late), now=LATER)
    assert session_changes.is_missed(session, now=late)
    assert not session_changes.is_missed(coming, now=late)
    assert not session_changes.is_missed(waiting(), now=late)


def test_a_session_that_may_hold_a_claim_does_not_end_before_it_is_withdrawn() -> None:
    begun = session_changes.begin_placement(waiting(), "w1", epoch=1, now=NOON)
    with pytest.raises(Conflict, match="w1 may hold a claim"):
        unplaced(begun, EndReason.CANCELLED)
    withdrawn = session_changes.withdraw_placement(begun, attempt=1, now=NOON)
    assert unplaced(withdrawn, EndReason.CANCELLED).status is SessionStatus.TERMINATED
    assert session_changes.withdraw_placement(withdrawn, attempt=1, now=NOON) == withdrawn
    with pytest.raises(Conflict, match="in use"):
        session_changes.withdraw_placement(after("place"), attempt=1, now=NOON)


def test_a_repeated_placement_has_the_same_result_and_an_older_attempt_is_refused() -> None:
    begun = session_changes.begin_placement(waiting(), "w1", epoch=1, now=NOON)
    assert session_changes.begin_placement(begun, "w1", epoch=1, now=LATER) == begun
    with pytest.raises(Conflict, match="names worker w1"):
        session_changes.begin_placement(begun, "w2", epoch=1, now=NOON)
    session = placed(waiting())
    assert session_changes.schedule(session, attempt=1, ports={}, now=LATER) == session
    again = placed(STEPS["drain"](session))
    assert again.attempt == 2
    with pytest.raises(Conflict, match="release its claim"):
        session_changes.schedule(again, attempt=1, ports={}, now=LATER)


def test_the_pause_after_three_failed_placements_doubles_up_to_a_minute() -> None:
    session, pauses = waiting(), []
    for _ in range(10):
        session = session_changes.record_failed_placement(session, worker_id="w1", reason="full", now=NOON)
        assert session.next_try_at is not None
        pauses.append((session.next_try_at - NOON).total_seconds())
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert session.avoided_workers == {"w1": NOON + timedelta(minutes=10)}


def test_a_session_fails_when_its_retries_are_used_up_and_a_booked_one_keeps_trying() -> None:
    asap, booked = waiting(), after("open", timeslot=SLOT)
    for _ in range(session_changes.MAX_RETRIES):
        asap = session_changes.record_failed_placement(asap, worker_id="w1", reason="full", now=NOON)
        booked = session_changes.record_failed_placement(booked, worker_id="w1", reason="full", now=NOON)
    assert (asap.status, asap.end_reason) == (SessionStatus.FAILED, EndReason.FAILED)
    assert booked.status is SessionStatus.PENDING_SCHEDULING
    assert booked.next_try_at == NOON + timedelta(minutes=5)
    with pytest.raises(Conflict, match="no placement to fail"):
        session_changes.record_failed_placement(asap, worker_id="w1", reason="full", now=NOON)


def test_a_reason_to_wait_keeps_its_time_while_its_code_stays() -> None:
    first = session_changes.wait(waiting(), WaitCode.NO_ROOM, "1 worker is full", now=NOON)
    assert session_changes.wait(first, WaitCode.NO_ROOM, "1 worker is full", now=LATER) is first
    second = session_changes.wait(first, WaitCode.NO_ROOM, "2 workers are full", now=LATER)
    third = session_changes.wait(second, WaitCode.BACKOFF, "a command failed", now=LATER)
    assert second.waits_for is not None
    assert second.waits_for.since == NOON
    assert third.waits_for is not None
    assert third.waits_for.since == LATER
    with pytest.raises(Conflict, match="waits for nothing"):
        session_changes.wait(after("place"), WaitCode.NO_ROOM, "", now=NOON)
    with pytest.raises(Conflict, match="only a waiting one"):
        session_changes.nominate(after("place"), Nomination(worker_id="w", ready_at=NOON), now=NOON)


def test_a_session_that_was_ready_is_placed_again_once_and_only_if_its_worker_is_lost() -> None:
    ready = after("place", "instantiate", "ready")
    with pytest.raises(IllegalTransition):
        STEPS["drain"](ready)
    again = STEPS["lose"](ready)
    assert (again.status, again.worker_id, again.ports) == (SessionStatus.PENDING_SCHEDULING, None, {})
    second = STEPS["ready"](STEPS["instantiate"](placed(again)))
    with pytest.raises(Conflict, match="not placed again"):
        STEPS["lose"](second)


def test_a_lost_session_with_little_time_left_or_without_the_setting_is_not_placed_again() -> None:
    running = after("open", "place", "instantiate", "ready", "run", timeslot=SLOT)
    for now, can_replace in ((SLOT.end - timedelta(minutes=14), True), (SLOT.start, False)):
        with pytest.raises(Conflict, match="not placed again"):
            session_changes.unschedule(
                running, reason="lost", now=now, is_worker_lost=True, can_replace_lost=can_replace
            )


def test_the_first_request_to_end_counts_and_ends_the_search_for_another_worker() -> None:
    asked = after("place", "ask")
    assert asked.desired_status is SessionDesiredStatus.TERMINATED
    assert ask(asked, EndReason.FAILED, by="ben") is asked
    for name in ("drain", "instantiate"):
        with pytest.raises(Conflict, match="end of the session is requested"):
            STEPS[name](asked)
    assert STEPS["finish"](STEPS["stop"](asked)).status is SessionStatus.TERMINATED
    with pytest.raises(Conflict, match="do not place it"):
        session_changes.begin_placement(ask(waiting(), EndReason.CANCELLED), "w1", epoch=1, now=LATER)


@pytest.mark.parametrize("status", [SessionStatus.SCHEDULED, *OWNS_LAB])
def test_every_session_with_a_claim_ends_through_stopping(status: SessionStatus) -> None:
    session = in_every_status()[status]
    for name in ("cancel", "expire", "reject", "finish"):
        with pytest.raises(IllegalTransition):
            STEPS[name](session)
    assert STEPS["finish"](STEPS["stop"](session)).status is SessionStatus.ARCHIVED


def test_a_session_ends_only_when_its_lab_is_gone_and_its_claim_released() -> None:
    stopping = after("place", "stop")
    claim = Claim(session_id="s1", attempt=1, needs=Capacity(cpu=1), at=NOON)
    with pytest.raises(Conflict, match="not proven gone"):
        session_changes.finish(stopping, is_lab_gone=False, claim=None, now=LATER)
    for held in (claim, replace(claim, is_retained=True)):
        with pytest.raises(Conflict, match="still holds"):
            session_changes.finish(stopping, is_lab_gone=True, claim=held, now=LATER)
    older = replace(claim, is_retained=True, attempt=0)
    assert session_changes.finish(stopping, is_lab_gone=True, claim=older, now=LATER).is_ended
    with pytest.raises(IllegalTransition):
        STEPS["cancel"](stopping)


def test_a_lab_is_imported_when_due_and_used_from_the_start_or_the_first_access() -> None:
    scheduled = after("open", "place", timeslot=SLOT)
    early = SLOT.start - timedelta(minutes=6)
    with pytest.raises(Conflict, match="not due"):
        session_changes.instantiate(scheduled, now=early)
    ready = STEPS["ready"](STEPS["instantiate"](scheduled))
    with pytest.raises(Conflict, match="not begun"):
        session_changes.run(ready, now=early)
    assert session_changes.run(ready, now=early, is_used=True).started_at == early


def test_a_session_without_a_timeslot_is_over_after_its_duration_counted_from_ready() -> None:
    ready = after("place", "instantiate", "ready")
    assert ready.ends_at == LATER + timedelta(minutes=60)
    assert session_changes.is_over(ready, now=LATER + timedelta(minutes=60))
    assert not session_changes.is_over(after("place"), now=LATER + timedelta(days=1))


def test_a_session_that_collects_nothing_is_stopped_instead() -> None:
    running = replace(after("place", "instantiate", "ready", "run"), collect=Collect.NONE)
    with pytest.raises(Conflict, match="collects nothing"):
        STEPS["collect"](running)


def test_an_extension_stays_within_the_allowed_duration_unless_an_operator_exceeds_it() -> None:
    short = replace(
        waiting(SLOT), timeslot=Timeslot(start=SLOT.start, end=SLOT.start + timedelta(minutes=30))
    )
    assert session_changes.extend(short, SLOT.end, now=NOON).ends_at == SLOT.end
    longer = SLOT.end + timedelta(minutes=1)
    with pytest.raises(InvalidTimeslot, match="60 minutes"):
        session_changes.extend(short, longer, now=NOON)
    assert session_changes.extend(short, longer, now=NOON, may_exceed=True).ends_at == longer
    with pytest.raises(Conflict, match="only a booked session"):
        session_changes.extend(waiting(), longer, now=NOON)


def test_only_cpu_is_shared_and_cml_keeps_its_own_part() -> None:
    declared = Capacity(cpu=48, memory_gb=192, storage_gb=1000, nodes=200)
    reserve = Reserve(cpu=1, memory_gb=4, storage_gb=16, cpu_overcommit=2)
    room = allocatable(declared, reserve)
    assert room == Capacity(cpu=95, memory_gb=188, storage_gb=984, nodes=200)
    assert allocatable(Capacity(), reserve) == Capacity()


def test_retained_claims_count_like_any_other() -> None:
    claim = Claim(session_id="s", attempt=1, needs=Capacity(cpu=2), ports={"a": 2000}, at=NOON)
    claims = [claim, replace(claim, is_retained=True, ports={"b": 2001})]
    assert allocated(claims) == Capacity(cpu=4)
    assert ports_of(claims) == {2000, 2001}
