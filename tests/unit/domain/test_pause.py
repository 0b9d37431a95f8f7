"""The pause of a worker: what may follow what, what each step records, and that no worker gets stuck."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain import pause
from lcm.domain.errors import IllegalTransition
from lcm.domain.lifecycle import DRAINING, PENDING, RUNNING, TERMINATED, DesiredStatus, allowed_targets
from lcm.domain.pause import MEANING, PAUSE_TRANSITIONS, Pause, PauseReason, PauseState
from lcm.domain.requests import cancel_pause, drain, pause_idle, possible_actions, request
from lcm.domain.transitions import move
from lcm.domain.worker import Action, Worker
from support.core import NOON, a_worker

LATER = NOON + timedelta(hours=1)
AUTO, MANUAL = PauseReason.IDLE_TIMEOUT, PauseReason.MANUAL
TABLE = {(row.source, row.target) for row in PAUSE_TRANSITIONS}

Step = Callable[[Pause, datetime], Pause]

STEPS: dict[str, Step] = {
    "decide": lambda p, now: pause.decide(p, at=now),
    "withdraw": lambda p, now: pause.withdraw_decision(p, now=now),
    "stop": lambda p, now: pause.request_stop(p, MANUAL, is_running=True, by="ada", now=now),
    "stop before it ran": lambda p, now: pause.request_stop(p, MANUAL, is_running=False, by="ada", now=now),
    "pause": lambda p, now: pause.request_stop(p, AUTO, is_running=True, by="idle", now=now),
    "drain": lambda p, now: pause.request_drain(p, MANUAL, until=now + timedelta(hours=4), by="ada", now=now),
    "scale down": lambda p, now: pause.request_drain(
        p, AUTO, until=now + timedelta(hours=4), by="i", now=now
    ),
    "carry out": lambda p, now: pause.carry_out(p, now=now),
    "stop outside": lambda p, now: pause.stop_outside(p, by="EC2", now=now),
    "cancel": lambda p, now: pause.cancel(p, now=now),
    "abandon": lambda p, now: pause.abandon(p, now=now),
    "start": lambda p, now: pause.request_resume(p, is_running=True, now=now),
    "start the stopped": lambda p, now: pause.request_resume(p, is_running=False, now=now),
    "runs": lambda p, now: pause.resume(p, now=now),
}


def after(*names: str) -> Pause:
    """The pause after these steps, an hour apart from noon on."""
    current = Pause()
    for hours, name in enumerate(names):
        current = STEPS[name](current, NOON + timedelta(hours=hours))
    return current


IN_STATE = {
    PauseState.NONE: Pause(),
    PauseState.DECIDED: after("decide"),
    PauseState.REQUESTED: after("pause"),
    PauseState.DRAINING: after("drain"),
    PauseState.PAUSED: after("pause", "carry out"),
}


# The table


def test_every_state_says_what_it_means() -> None:
    assert set(MEANING) == set(PauseState)
    assert {state: known.state for state, known in IN_STATE.items()} == {state: state for state in PauseState}


def test_the_steps_make_exactly_the_transitions_of_the_table() -> None:
    made = set()
    for state, known in IN_STATE.items():
        for step in STEPS.values():
            try:
                changed = step(known, LATER + timedelta(hours=1))
            except IllegalTransition:
                continue
            if changed.since != known.since or changed.until != known.until or changed.state is not state:
                made.add((state, changed.state))
    assert made == TABLE


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (PauseState.REQUESTED, "decide"),
        (PauseState.REQUESTED, "drain"),
        (PauseState.DRAINING, "decide"),
        (PauseState.PAUSED, "decide"),
        (PauseState.PAUSED, "drain"),
        (PauseState.NONE, "cancel"),
    ],
)
def test_a_step_without_a_row_is_refused_and_names_what_is_allowed(state: PauseState, step: str) -> None:
    with pytest.raises(IllegalTransition) as refused:
        STEPS[step](IN_STATE[state], LATER)
    assert f"pause {state}" in str(refused.value)


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12))
def test_only_a_drain_has_a_deadline_and_only_what_is_not_requested_a_countdown(names: list[str]) -> None:
    current = Pause(due_at=LATER)
    for hours, name in enumerate(names):
        try:
            current = STEPS[name](current, NOON + timedelta(hours=hours))
        except IllegalTransition:
            continue
        assert (current.until is not None) == (current.state is PauseState.DRAINING)
        assert current.due_at is None or current.state in (PauseState.NONE, PauseState.DECIDED)
        assert current.since is None or current.since <= NOON + timedelta(hours=hours)
        assert min(current.auto_pause_count, current.manual_pause_count, current.auto_resume_count) >= 0


# What each step records


def test_a_pause_counts_when_it_is_requested_and_a_cancelled_one_does_not() -> None:
    assert after("pause").auto_pause_count == 1
    cancelled = after("pause", "cancel")
    assert (cancelled.auto_pause_count, cancelled.reason) == (0, None)


def test_an_operators_stop_takes_the_place_of_an_automatic_one() -> None:
    replaced = after("pause", "stop")
    assert (replaced.auto_pause_count, replaced.manual_pause_count, replaced.reason) == (0, 1, MANUAL)


def test_a_pause_that_was_carried_out_stays_counted_when_it_is_requested_again() -> None:
    assert after("pause", "carry out", "pause").auto_pause_count == 2


def test_a_stop_was_requested_when_it_was_and_a_drain_pauses_when_it_ends() -> None:
    assert after("stop", "carry out").last_paused_at == NOON
    assert after("drain", "carry out").last_paused_at == LATER


def test_a_drain_that_replaces_another_began_with_that_one() -> None:
    replaced = after("scale down", "drain")
    assert (replaced.since, replaced.until, replaced.reason) == (NOON, LATER + timedelta(hours=4), MANUAL)


def test_a_stop_during_a_drain_waits_no_longer() -> None:
    assert (after("drain", "stop").state, after("drain", "stop").until) == (PauseState.REQUESTED, None)


def test_a_start_resumes_a_worker_that_runs_at_once_and_any_other_once_it_runs() -> None:
    at_once = after("stop", "start")
    assert (at_once.state, at_once.last_resumed_at, at_once.manual_resume_count) == ("none", LATER, 1)
    waiting = after("stop", "carry out", "start the stopped")
    assert (waiting.state, waiting.last_resumed_at, waiting.manual_resume_count) == ("paused", None, 1)
    assert pause.resume(waiting, now=LATER).last_resumed_at == LATER


def test_lcm_itself_resumes_what_was_stopped_outside() -> None:
    resumed = after("stop outside", "runs")
    assert (resumed.auto_resume_count, resumed.manual_resume_count, resumed.reason) == (1, 0, "external")
    assert after("pause", "carry out", "runs").auto_resume_count == 0


def test_a_decision_made_at_the_same_moment_is_the_same_decision() -> None:
    decided = replace(after("decide"), due_at=LATER)
    assert pause.decide(decided, at=NOON) is decided
    assert pause.decide(decided, at=LATER).decided_at == LATER
    assert pause.withdraw_decision(decided, now=LATER).due_at == LATER


# In the life of a worker


def walk(worker: Worker, choice: tuple[str, int], now: datetime) -> Worker:
    """The worker after one of the things that may happen to it; as it was if that may not happen now."""
    kind, pick = choice
    if kind == "person":
        actions = sorted(possible_actions(worker) - {Action.DRAIN, Action.CANCEL_DRAIN})
        return request(worker, actions[pick % len(actions)], by="ada", now=now) if actions else worker
    if kind == "drain":
        is_possible = Action.DRAIN in possible_actions(worker) or worker.status is DRAINING
        why = MANUAL if pick % 2 else AUTO
        if not is_possible:
            return worker
        return drain(worker, deadline=now + timedelta(hours=4), by="ada", reason="drained", now=now, why=why)
    if kind == "idle":
        if worker.status is not RUNNING or worker.desired_status is not DesiredStatus.RUNNING:
            return worker
        if worker.pause.decided_at is None:
            return replace(worker, pause=pause.decide(worker.pause, at=now))
        return pause_idle(worker, by="idle detection", reason="unused", now=now)
    if kind == "use":
        return cancel_pause(worker, by="activity", reason="a node was started", now=now)
    is_observed = kind == "observed"
    targets = sorted(allowed_targets(worker.status, observed=is_observed))
    if not targets or worker.status is TERMINATED:
        return worker
    return move(worker, targets[pick % len(targets)], by="c", reason="", now=now, observed=is_observed)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["person", "drain", "idle", "use", "reported", "observed"]), st.integers(0, 9)
        ),
        max_size=40,
    )
)
def test_whatever_happens_to_a_worker_its_pause_has_a_row_for_it(choices: list[tuple[str, int]]) -> None:
    workers = [a_worker()]
    for minutes, choice in enumerate(choices, 1):
        workers.append(walk(workers[-1], choice, NOON + timedelta(minutes=minutes)))
    for before, worker in pairwise(workers):
        if before.pause.state is not worker.pause.state:
            assert (before.pause.state, worker.pause.state) in TABLE
        if worker.pause.state is PauseState.DECIDED:
            assert worker.status is RUNNING
        if worker.status is DRAINING and worker.desired_status is DesiredStatus.STOPPED:
            assert worker.pause.is_unfinished
        if worker.status is PENDING and worker.desired_status is DesiredStatus.RUNNING:
            assert not worker.pause.is_unfinished
