"""When a worker is idle, and what prevents a pause all the same."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.domain.idle import (
    DECISION_EXPIRES_AFTER,
    SECOND_CHECK_AFTER,
    Evidence,
    IdlePolicy,
    PauseGuard,
    assess,
    is_fresh,
    is_pause_overdue,
    pause_due_at,
    pause_guard,
)
from lcm.domain.lablet.claim import Claim
from lcm.domain.lifecycle import DRAINING, RUNNING, STARTING, STOPPED, DesiredStatus
from lcm.domain.pause import DECIDED, PAUSED, REQUESTED, PauseReason
from lcm.domain.requests import cancel_pause, pause_idle
from lcm.domain.transitions import move
from lcm.domain.worker import Hold, Worker
from support.claims import claims_of
from support.core import NOON, a_worker, with_fields

POLICY = IdlePolicy()
PROOF = Evidence(telemetry_fetched=True, running_workers=3)
MINUTE = timedelta(minutes=1)


def used(minutes_ago: float, **fields: object) -> Worker:
    """A running worker whose last activity was so long before noon."""
    worker = a_worker(status=RUNNING, created_at=NOON - timedelta(days=1), **fields)
    return with_fields(worker, last_activity_at=NOON - minutes_ago * MINUTE)


def retained(session_id: str) -> tuple[Claim, ...]:
    """The claim of a session that moved on while its lab may exist."""
    return tuple(replace(claim, is_retained=True, lab_generation=1) for claim in claims_of(session_id))


def decided(worker: Worker, seconds_ago: float = 60) -> Worker:
    return with_fields(worker, pause_state=DECIDED, pause_since=NOON - timedelta(seconds=seconds_ago))


# Since when


def test_the_last_activity_counts_then_the_last_resumption_then_the_creation() -> None:
    created = a_worker(status=RUNNING, created_at=NOON - 90 * MINUTE)
    resumed = with_fields(created, last_resumed_at=NOON - 80 * MINUTE)
    active = with_fields(resumed, last_activity_at=NOON - 70 * MINUTE)
    assert [assess(w, POLICY, NOON).idle_minutes for w in (created, resumed, active)] == [90, 80, 70]


@pytest.mark.parametrize(("minutes", "is_idle"), [(59, False), (60, False), (61, True)])
def test_idle_means_unused_for_more_than_the_timeout(minutes: float, is_idle: bool) -> None:
    assert assess(used(minutes), POLICY, NOON).is_idle is is_idle


def test_activity_in_the_future_of_our_clock_is_activity_now() -> None:
    assert assess(used(-5), POLICY, NOON).idle_minutes == 0


# Guards, in their order


def test_nothing_forbids_pausing_a_proven_idle_worker_at_the_second_idle_check() -> None:
    assert pause_guard(decided(used(61)), POLICY, PROOF, NOON) is None


@pytest.mark.parametrize(
    ("guard", "worker", "policy", "evidence"),
    [
        ("not_running", used(61, desired_status=DesiredStatus.RUNNING), POLICY, PROOF),
        ("stop_requested", used(61, desired_status=DesiredStatus.STOPPED), POLICY, PROOF),
        ("detection_disabled", used(61, is_idle_detection_enabled=False), POLICY, PROOF),
        ("auto_pause_disabled", used(61), IdlePolicy(auto_pause_enabled=False), PROOF),
        ("held", used(61, hold=Hold(until=NOON + MINUTE, by="ada")), POLICY, PROOF),
        ("active", used(59), POLICY, PROOF),
        ("snoozed", used(61, last_resumed_at=NOON - 59 * MINUTE), POLICY, PROOF),
        ("suppressed", used(61), POLICY, Evidence(telemetry_fetched=True, suppressed=True)),
        ("active_sessions", used(61, claims=claims_of("lablet-1")), POLICY, PROOF),
        ("active_sessions", used(61, claims=retained("lablet-1")), POLICY, PROOF),
        ("nominated", used(61, nominations={"lablet-1": NOON + 35 * MINUTE}), POLICY, PROOF),
        ("nominated", used(61, nominations={"lablet-1": NOON - 5 * MINUTE}), POLICY, PROOF),
        (
            "min_workers",
            used(61),
            IdlePolicy(min_workers=2),
            Evidence(telemetry_fetched=True, running_workers=2),
        ),
        ("unconfirmed", used(61), POLICY, Evidence(telemetry_fetched=False)),
    ],
)
def test_a_guard_forbids_the_pause_even_at_the_second_idle_check(
    guard: str, worker: Worker, policy: IdlePolicy, evidence: Evidence
) -> None:
    if guard == "not_running":
        worker = replace(worker, status=DRAINING)
    assert pause_guard(decided(worker), policy, evidence, NOON) == guard


def test_a_session_that_counts_on_the_worker_later_than_the_lead_keeps_it_from_no_pause() -> None:
    worker = used(61, nominations={"later": NOON + 36 * MINUTE})
    assert pause_guard(decided(worker), POLICY, PROOF, NOON) is None
    assert pause_guard(decided(worker), IdlePolicy(lead=40 * MINUTE), PROOF, NOON) == "nominated"


@pytest.mark.parametrize(
    "seconds_ago", [None, SECOND_CHECK_AFTER.total_seconds() - 1, DECISION_EXPIRES_AFTER.total_seconds() + 1]
)
def test_a_pause_needs_a_recent_decision_and_a_second_idle_check(seconds_ago: float | None) -> None:
    worker = used(61) if seconds_ago is None else decided(used(61), seconds_ago)
    assert pause_guard(worker, POLICY, PROOF, NOON) is PauseGuard.SECOND_CHECK


def test_a_hold_that_is_over_forbids_nothing() -> None:
    assert assess(used(61, hold=Hold(until=NOON, by="ada")), POLICY, NOON).guard is None


# The countdown


def test_the_countdown_ends_with_the_longest_protection() -> None:
    worker = used(10)
    assert pause_due_at(worker, POLICY) == NOON + 50 * MINUTE
    resumed = with_fields(worker, last_resumed_at=NOON)
    assert pause_due_at(resumed, POLICY) == NOON + 60 * MINUTE
    held = replace(resumed, hold=Hold(until=NOON + 300 * MINUTE, by="ada"))
    assert pause_due_at(held, POLICY) == NOON + 300 * MINUTE


def test_there_is_no_countdown_for_a_worker_that_is_never_paused() -> None:
    assert pause_due_at(used(10, is_idle_detection_enabled=False), POLICY) is None
    assert pause_due_at(used(10), IdlePolicy(auto_pause_enabled=False)) is None


# How long evidence and a pause last


@pytest.mark.parametrize(("seconds_ago", "proves"), [(0, True), (30, True), (31, False), (-31, False)])
def test_evidence_that_is_old_or_from_the_future_proves_nothing(seconds_ago: float, proves: bool) -> None:
    assert is_fresh(NOON - timedelta(seconds=seconds_ago), NOON) is proves


@pytest.mark.parametrize(("seconds_ago", "is_off"), [(0, False), (60, False), (61, True), (-1, True)])
def test_a_pause_that_is_not_carried_out_within_a_minute_is_off(seconds_ago: float, is_off: bool) -> None:
    wanted_at = NOON - timedelta(seconds=seconds_ago)
    worker = pause_idle(decided(used(61)), by="idle detection", reason="unused", now=wanted_at)
    assert is_pause_overdue(worker, NOON) is is_off


def test_what_a_person_asked_for_is_never_off() -> None:
    stopped_by_a_person = used(
        61,
        desired_status=DesiredStatus.STOPPED,
        pause_state=REQUESTED,
        pause_since=NOON - 90 * MINUTE,
        pause_reason=PauseReason.MANUAL,
    )
    assert not is_pause_overdue(stopped_by_a_person, NOON)


def test_a_pause_that_was_carried_out_is_not_taken_back_because_ec2_says_it_runs() -> None:
    paused = with_fields(
        used(61, desired_status=DesiredStatus.STOPPED, pause_reason=PauseReason.IDLE_TIMEOUT),
        pause_state=PAUSED,
        pause_since=NOON - 90 * MINUTE,
        status=STOPPED,
    )
    seen = move(paused, RUNNING, by="c", reason="running outside LCM", now=NOON, observed=True)
    assert not is_pause_overdue(seen, NOON)


# What a pause does to the record


def test_an_automatic_pause_wants_the_worker_stopped_and_says_so() -> None:
    worker = pause_idle(decided(used(61)), by="idle detection", reason="unused for 61 minutes", now=NOON)
    assert worker.desired_status is DesiredStatus.STOPPED
    assert (worker.pause.reason, worker.pause.auto_pause_count) == ("idle_timeout", 1)
    assert worker.pause.decided_at is None
    assert worker.state_history[-1].reason == "unused for 61 minutes"


def test_use_between_the_decision_and_the_stop_cancels_the_pause() -> None:
    paused = pause_idle(decided(used(61)), by="idle detection", reason="unused", now=NOON)
    worker = cancel_pause(paused, by="activity", reason="a node was started", now=NOON + MINUTE)
    assert worker.desired_status is DesiredStatus.RUNNING
    assert (worker.pause.reason, worker.pause.auto_pause_count) == (None, 0)
    assert worker.generation == paused.generation + 1


def test_use_does_not_take_back_what_a_person_asked_for() -> None:
    stopped_by_a_person = used(
        61, desired_status=DesiredStatus.STOPPED, pause_state=REQUESTED, pause_reason=PauseReason.MANUAL
    )
    assert cancel_pause(stopped_by_a_person, by="activity", reason="", now=NOON) == stopped_by_a_person


def test_a_resumed_worker_is_known_as_resumed_once_it_runs() -> None:
    paused = with_fields(used(61), pause_state=PAUSED, pause_reason=PauseReason.IDLE_TIMEOUT, status=STOPPED)
    starting = move(paused, STARTING, by="c", reason="wanted", now=NOON + MINUTE)
    assert starting.pause.last_resumed_at is None
    running = move(starting, RUNNING, by="c", reason="runs", now=NOON + 5 * MINUTE)
    assert running.pause.last_resumed_at == NOON + 5 * MINUTE
