"""The transition table: what may follow what, and what EC2's states mean."""

from collections.abc import Callable
from itertools import product

import msgspec
import pytest

from lcm.domain.errors import IllegalTransition
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    MEANING,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    TRANSITIONS,
    UNKNOWN,
    WorkerStatus,
    allowed_targets,
    find_transition,
    is_allowed,
    status_of_ec2_state,
)
from lcm.domain.transitions import move
from lcm.domain.worker import Worker
from support.core import NOON, a_worker

CONTRACT = {
    PENDING: {PROVISIONING, FAILED, TERMINATED},
    PROVISIONING: {STARTING, FAILED, TERMINATED},
    STARTING: {RUNNING, FAILED, STOPPING, TERMINATED},
    RUNNING: {DRAINING, STOPPING, TERMINATING, PENDING, FAILED},
    DRAINING: {STOPPING, RUNNING, TERMINATING},
    STOPPING: {STOPPED, TERMINATED},
    STOPPED: {STARTING, PENDING, TERMINATING, TERMINATED},
    TERMINATING: {TERMINATED},
    FAILED: {PENDING, TERMINATING},
}
"""The rows of the worker contract; the table may have more, never fewer."""

BEYOND_THE_CONTRACT = {
    (PROVISIONING, TERMINATING),
    (STARTING, TERMINATING),
    (STOPPING, TERMINATING),
    (PROVISIONING, PENDING),
}
"""Rows that make a deletion quicker, and one for instances that EC2 itself terminates."""

SEEN_AT_EC2 = {
    PROVISIONING: {STOPPING, STOPPED, UNKNOWN},
    STARTING: {STOPPED, UNKNOWN},
    RUNNING: {STARTING, STOPPED, TERMINATED, UNKNOWN},
    DRAINING: {STOPPED, TERMINATED, UNKNOWN},
    STOPPING: {UNKNOWN},
    STOPPED: {RUNNING, STOPPING, UNKNOWN},
    TERMINATING: {UNKNOWN},
    FAILED: {TERMINATED, UNKNOWN},
    UNKNOWN: {PROVISIONING, STARTING, RUNNING, STOPPING, STOPPED, TERMINATING, TERMINATED},
}
"""What EC2 may do without a request: reported, never requested."""

DECIDED = {(a, b) for a, targets in CONTRACT.items() for b in targets} | BEYOND_THE_CONTRACT
OBSERVED = DECIDED | {(a, b) for a, targets in SEEN_AT_EC2.items() for b in targets}

PAIRS = [(a, b) for a, b in product(WorkerStatus, WorkerStatus) if a is not b]


def moved(worker: Worker, target: WorkerStatus, *, observed: bool) -> Worker:
    return move(worker, target, by="controller", reason="because", now=NOON, observed=observed)


@pytest.mark.parametrize(("source", "target"), sorted((a, b) for a, bs in CONTRACT.items() for b in bs))
def test_the_contracts_transitions_can_be_decided(source: WorkerStatus, target: WorkerStatus) -> None:
    assert is_allowed(source, target)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_decision_follows_the_table_exactly(source: WorkerStatus, target: WorkerStatus) -> None:
    assert is_allowed(source, target) is ((source, target) in DECIDED)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_report_of_what_ec2_did_follows_the_table_exactly(
    source: WorkerStatus, target: WorkerStatus
) -> None:
    assert is_allowed(source, target, observed=True) is ((source, target) in OBSERVED)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_worker_moves_where_the_table_allows_and_nowhere_else(
    source: WorkerStatus, target: WorkerStatus
) -> None:
    worker = a_worker(status=source)
    if (source, target) in DECIDED:
        assert moved(worker, target, observed=False).status is target
        return
    with pytest.raises(IllegalTransition) as refused:
        moved(worker, target, observed=False)
    allowed = sorted(b for a, b in DECIDED if a is source)
    assert refused.value.allowed == allowed
    assert all(status in str(refused.value) for status in allowed)


@pytest.mark.parametrize(("source", "target"), sorted(OBSERVED))
def test_a_foreseen_report_moves_the_worker_there(source: WorkerStatus, target: WorkerStatus) -> None:
    assert moved(a_worker(status=source), target, observed=True).status is target


@pytest.mark.parametrize(
    ("source", "target"),
    sorted((a, b) for a, b in PAIRS if (a, b) not in OBSERVED and a not in {PENDING, TERMINATED, UNKNOWN}),
)
def test_an_unforeseen_report_makes_the_worker_unknown(source: WorkerStatus, target: WorkerStatus) -> None:
    surprised = moved(a_worker(status=source), target, observed=True)
    assert surprised.status is UNKNOWN
    assert f"from {source} to {target}" in surprised.status_reason


@pytest.mark.parametrize("target", [PENDING, DRAINING, FAILED])
def test_an_unknown_worker_does_not_move_from_unknown_to_unknown(target: WorkerStatus) -> None:
    worker = a_worker(status=UNKNOWN)
    still = moved(worker, target, observed=True)
    assert still.status is UNKNOWN
    assert still.state_history == worker.state_history


@pytest.mark.parametrize("source", [PENDING, TERMINATED])
def test_a_worker_without_an_instance_cannot_be_surprised_by_ec2(source: WorkerStatus) -> None:
    with pytest.raises(IllegalTransition):
        moved(a_worker(status=source), RUNNING, observed=True)


def test_nothing_leads_out_of_terminated() -> None:
    assert allowed_targets(TERMINATED, observed=True) == frozenset()
    with pytest.raises(IllegalTransition, match="none, it is final"):
        moved(a_worker(status=TERMINATED), PENDING, observed=False)


def test_the_table_has_each_row_once_and_says_why() -> None:
    rows = [(row.source, row.target) for row in TRANSITIONS]
    assert len(rows) == len(set(rows))
    assert set(rows) == OBSERVED
    assert all(row.because for row in TRANSITIONS)
    assert not any(row.source is row.target for row in TRANSITIONS)


def test_every_status_is_explained() -> None:
    assert set(MEANING) == set(WorkerStatus)


def test_a_row_can_be_found_by_its_ends() -> None:
    row = find_transition(RUNNING, STOPPED)
    assert row is not None
    assert row.observed
    assert find_transition(TERMINATED, RUNNING) is None


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("pending", PROVISIONING),
        ("running", RUNNING),
        ("stopping", STOPPING),
        ("stopped", STOPPED),
        ("shutting-down", TERMINATING),
        ("terminated", TERMINATED),
        ("hibernating", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_an_ec2_state_stands_for_a_status(state: str, status: WorkerStatus) -> None:
    assert status_of_ec2_state(state) is status


@pytest.mark.parametrize("status", WorkerStatus)
@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
def test_a_status_is_read_in_any_case_and_stored_in_lower_case(
    status: WorkerStatus, spelling: Callable[[str], str]
) -> None:
    text = f'"{spelling(status.value)}"'.encode()
    assert WorkerStatus(spelling(status.value)) is status
    assert msgspec.json.decode(text, type=WorkerStatus) is status
    assert msgspec.json.encode(status) == f'"{status.value.lower()}"'.encode()


@pytest.mark.parametrize("nonsense", ["", "run ning", "paused"])
def test_what_is_no_status_is_refused(nonsense: str) -> None:
    with pytest.raises(ValueError, match="WorkerStatus"):
        WorkerStatus(nonsense)
