"""Requests of people change the desired status of a worker, never its status."""

from datetime import timedelta
from itertools import product

import pytest

from lcm.domain.errors import ActionRefused, TooSoon
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.pause import PauseReason, PauseState
from lcm.domain.requests import cancel_pause, drain, possible_actions, refresh, request
from lcm.domain.transitions import move
from lcm.domain.worker import Action, HistoryEntry, Worker
from support.core import NOON, a_worker

START, STOP, DELETE, RETRY = Action.START, Action.STOP, Action.DELETE, Action.RETRY
DRAIN, CANCEL_DRAIN = Action.DRAIN, Action.CANCEL_DRAIN
LATER = NOON + timedelta(hours=1)

POSSIBLE = {status: {START, STOP, DELETE} for status in WorkerStatus} | {
    RUNNING: {START, STOP, DRAIN, DELETE},
    DRAINING: {START, CANCEL_DRAIN, STOP, DELETE},
    FAILED: {RETRY, DELETE},
    TERMINATING: {DELETE},
    TERMINATED: set(),
}
DESIRED = {
    START: DesiredStatus.RUNNING,
    CANCEL_DRAIN: DesiredStatus.RUNNING,
    STOP: DesiredStatus.STOPPED,
    DELETE: DesiredStatus.TERMINATED,
}


def asked(worker: Worker, action: Action) -> Worker:
    return request(worker, action, by="bob", now=LATER)


@pytest.mark.parametrize("status", WorkerStatus)
def test_a_status_allows_certain_actions(status: WorkerStatus) -> None:
    assert possible_actions(a_worker(status=status)) == POSSIBLE[status]


@pytest.mark.parametrize(
    ("status", "action"),
    [(s, a) for s, a in product(WorkerStatus, Action) if a in POSSIBLE[s] and a in DESIRED],
)
def test_an_action_changes_the_desired_status_and_not_the_status(
    status: WorkerStatus, action: Action
) -> None:
    other = DesiredStatus.STOPPED if DESIRED[action] is DesiredStatus.RUNNING else DesiredStatus.RUNNING
    worker = asked(a_worker(status=status, desired_status=other, unattended_launches=2), action)
    assert worker.desired_status is DESIRED[action]
    assert worker.status is status
    assert worker.generation == 2
    assert worker.launch.unattended == 0
    assert worker.updated_at == LATER


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (s, a)
        for s, a in product(WorkerStatus, Action)
        if a not in POSSIBLE[s] and a is not DRAIN and (s, a) != (TERMINATED, DELETE)
    ],
)
def test_an_action_the_status_does_not_allow_is_refused_and_the_possible_ones_named(
    status: WorkerStatus, action: Action
) -> None:
    with pytest.raises(ActionRefused) as refused:
        asked(a_worker(status=status), action)
    assert refused.value.allowed == sorted(POSSIBLE[status])
    assert f"cannot {action} a worker that is {status}" in str(refused.value)


@pytest.mark.parametrize("action", [START, STOP, DELETE])
def test_asking_twice_changes_nothing(action: Action) -> None:
    once = asked(a_worker(), action)
    assert asked(once, action) is once


def test_asking_for_what_is_wanted_already_changes_nothing() -> None:
    worker = a_worker()
    assert asked(worker, START) is worker


def test_deleting_what_is_gone_changes_nothing() -> None:
    worker = a_worker(status=TERMINATED, desired_status=DesiredStatus.TERMINATED)
    assert asked(worker, DELETE) is worker


@pytest.mark.parametrize("action", [START, STOP, RETRY])
@pytest.mark.parametrize("status", sorted(set(WorkerStatus) - {TERMINATED}))
def test_a_deletion_cannot_be_taken_back(action: Action, status: WorkerStatus) -> None:
    doomed = a_worker(status=status, desired_status=DesiredStatus.TERMINATED)
    with pytest.raises(ActionRefused, match="possible actions: delete"):
        asked(doomed, action)


def test_a_request_is_a_line_of_the_timeline() -> None:
    assert asked(a_worker(), STOP).state_history[-1] == HistoryEntry(
        source=PENDING, target=PENDING, by="bob", reason="stop requested", at=LATER
    )


def test_a_retried_worker_is_pending_again_with_a_fresh_clock_and_fresh_launches() -> None:
    failed = a_worker(status=FAILED, unattended_launches=3, pending_since=None)
    worker = asked(failed, RETRY)
    assert worker.status is PENDING
    assert worker.desired_status is DesiredStatus.RUNNING
    assert worker.generation == failed.generation + 1
    assert worker.launch.unattended == 0
    assert worker.pending_since == LATER
    assert worker.state_history[-1] == HistoryEntry(
        source=FAILED, target=PENDING, by="bob", reason="retried", at=LATER
    )


def test_a_retried_worker_that_was_wanted_stopped_is_wanted_running() -> None:
    failed = a_worker(status=FAILED, desired_status=DesiredStatus.STOPPED)
    assert asked(failed, RETRY).desired_status is DesiredStatus.RUNNING


def test_a_retry_keeps_the_instance_that_may_still_be_there() -> None:
    failed = a_worker(status=FAILED, ec2_instance_id=InstanceId("i-1"))
    assert asked(failed, RETRY).instance.id == "i-1"


# Draining


def drained(worker: Worker) -> Worker:
    return drain(worker, deadline=LATER + timedelta(hours=4), by="bob", reason="maintenance", now=LATER)


def test_a_drained_worker_takes_no_new_session_from_that_moment_on() -> None:
    worker = drained(a_worker(status=RUNNING))
    assert worker.pause.until == LATER + timedelta(hours=4)
    assert (worker.status, worker.desired_status) == (DRAINING, DesiredStatus.STOPPED)
    assert worker.pause.since == LATER
    assert worker.generation == 2


@pytest.mark.parametrize("action", [CANCEL_DRAIN, START])
def test_a_cancelled_drain_wants_the_worker_running(action: Action) -> None:
    worker = asked(drained(a_worker(status=RUNNING)), action)
    assert worker.desired_status is DesiredStatus.RUNNING


def test_a_stop_cuts_a_drain_short() -> None:
    worker = asked(drained(a_worker(status=RUNNING)), STOP)
    assert worker.desired_status is DesiredStatus.STOPPED
    assert (worker.pause.state, worker.pause.until) == (PauseState.REQUESTED, None)


def test_cutting_a_drain_short_twice_changes_nothing() -> None:
    once = asked(drained(a_worker(status=RUNNING)), STOP)
    assert asked(once, STOP) is once


def test_draining_twice_changes_nothing() -> None:
    once = drained(a_worker(status=RUNNING))
    assert drained(once) is once


@pytest.mark.parametrize("status", sorted(set(WorkerStatus) - {RUNNING, DRAINING}))
def test_only_a_running_worker_can_be_drained(status: WorkerStatus) -> None:
    with pytest.raises(ActionRefused, match="cannot drain"):
        drained(a_worker(status=status))


def test_use_takes_back_the_drain_of_an_unused_worker_and_not_the_one_of_a_person() -> None:
    unused = drain(
        a_worker(status=RUNNING),
        deadline=LATER,
        by="worker-controller",
        reason="scale-down",
        now=LATER,
        why=PauseReason.IDLE_TIMEOUT,
    )
    kept = cancel_pause(unused, by="idle detection", reason="used", now=LATER)
    assert (kept.desired_status, kept.pause.auto_pause_count) == (DesiredStatus.RUNNING, 0)
    asked_for = drained(a_worker(status=RUNNING, pause_reason=PauseReason.IDLE_TIMEOUT))
    assert cancel_pause(asked_for, by="idle detection", reason="used", now=LATER) == asked_for


def test_a_worker_that_was_drained_is_resumed_by_a_start() -> None:
    """So it is left alone for an hour, as after any other pause."""
    stopping = move(drained(a_worker(status=RUNNING)), STOPPING, by="c", reason="empty", now=LATER)
    assert (stopping.pause.last_paused_at, stopping.pause.last_paused_by) == (LATER, "bob")
    stopped = move(stopping, STOPPED, by="c", reason="stopped", now=LATER)
    starting = move(asked(stopped, START), STARTING, by="c", reason="wanted", now=LATER)
    running = move(starting, RUNNING, by="c", reason="runs", now=LATER + timedelta(minutes=5))
    assert running.pause.last_resumed_at == LATER + timedelta(minutes=5)


def test_a_start_outside_that_is_undone_is_no_resumption_but_the_next_wanted_one_is() -> None:
    """Otherwise the next person who starts the worker would find it paused a moment later."""
    stopping = move(asked(a_worker(status=RUNNING), STOP), STOPPING, by="c", reason="wanted", now=LATER)
    stopped = move(stopping, STOPPED, by="c", reason="stopped", now=LATER)
    outside = move(stopped, RUNNING, by="c", reason="runs", now=LATER + timedelta(minutes=1), observed=True)
    assert outside.pause.last_resumed_at is None
    undone = move(outside, STOPPING, by="c", reason="not wanted", now=LATER + timedelta(minutes=2))
    stopped = move(undone, STOPPED, by="c", reason="stopped", now=LATER + timedelta(minutes=3))
    starting = move(asked(stopped, START), STARTING, by="c", reason="wanted", now=LATER + timedelta(hours=1))
    running = move(starting, RUNNING, by="c", reason="runs", now=LATER + timedelta(minutes=61))
    assert running.pause.last_resumed_at == LATER + timedelta(minutes=61)


# Pauses and resumptions are counted


def test_a_stop_by_a_person_is_a_manual_pause() -> None:
    worker = asked(a_worker(status=RUNNING), STOP)
    assert (worker.pause.reason, worker.pause.last_paused_by) == (PauseReason.MANUAL, "bob")
    assert (worker.pause.manual_pause_count, worker.pause.auto_pause_count) == (1, 0)
    assert worker.pause.last_paused_at == LATER


def test_a_start_in_time_to_keep_a_worker_is_a_resumption_at_once() -> None:
    """It never stopped, and the person who started it is about to use it."""
    worker = asked(asked(a_worker(status=RUNNING), STOP), START)
    assert worker.pause.last_resumed_at == LATER


def test_a_start_by_a_person_is_a_manual_resumption() -> None:
    worker = asked(asked(a_worker(status=RUNNING), STOP), START)
    assert worker.pause.manual_resume_count == 1


# Refresh


def test_a_refresh_is_a_new_request_that_wakes_the_controller() -> None:
    worker = refresh(a_worker(status=RUNNING), now=LATER)
    assert (worker.refresh_requested_at, worker.generation) == (LATER, 2)


def test_a_refresh_right_after_another_is_refused_and_says_when_it_may_come() -> None:
    worker = refresh(a_worker(status=RUNNING), now=LATER)
    with pytest.raises(TooSoon, match="repeat in 7 s"):
        refresh(worker, now=LATER + timedelta(seconds=3))
    assert refresh(worker, now=LATER + timedelta(seconds=10)).generation == 3
