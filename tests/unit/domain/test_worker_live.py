"""A worker's connection and its activity: published once, never moved back."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.errors import ActionRefused, Conflict
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPING
from lcm.domain.observed import record_activity, record_certificate, record_connection
from lcm.domain.requests import accept_certificate, request
from lcm.domain.telemetry import ActivityEvent, ActivityMark, MonitorState
from lcm.domain.transitions import move
from lcm.domain.worker import Action, Worker, new_worker

T0 = datetime(2026, 1, 1, tzinfo=UTC)
CONNECTING, CONNECTED, RECONNECTING = (
    MonitorState.CONNECTING,
    MonitorState.CONNECTED,
    MonitorState.RECONNECTING,
)
FAILED, DISCONNECTED, DISABLED = MonitorState.FAILED, MonitorState.DISCONNECTED, MonitorState.DISABLED


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@pytest.fixture
def worker() -> Worker:
    fresh = new_worker(
        worker_id=WorkerId("w"),
        name="w",
        template_name="small",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=T0,
    )
    return replace(fresh, status=RUNNING)


# The certificate.


OLD, NEW, OTHER = "a" * 64, "b" * 64, "c" * 64


def presenting(worker: Worker, *certificates: str) -> Worker:
    """The worker after its CML presented these, one after the other."""
    for second, sha256 in enumerate(certificates):
        worker = record_certificate(worker, sha256, by="worker-controller", now=at(second))
    return worker


def certificates(worker: Worker) -> tuple[str | None, str | None]:
    return worker.cml.certificate_sha256, worker.cml.refused_certificate_sha256


def test_the_first_certificate_is_pinned_and_another_one_refused(worker: Worker) -> None:
    assert certificates(presenting(worker, OLD)) == (OLD, None)
    refusing = presenting(worker, OLD, NEW, NEW)
    assert certificates(refusing) == (OLD, NEW)
    said = [line for line in refusing.state_history if OLD in line.reason and NEW in line.reason]
    assert [line.by for line in said] == ["worker-controller"]


def test_a_server_that_presents_the_pinned_certificate_again_is_no_longer_refused(worker: Worker) -> None:
    assert certificates(presenting(worker, OLD, NEW, OLD)) == (OLD, None)


def test_an_accepted_certificate_takes_the_place_of_the_pinned_one(worker: Worker) -> None:
    refusing = presenting(worker, OLD, NEW)
    accepted = accept_certificate(refusing, NEW, by="ann", now=at(9))
    assert certificates(accepted) == (NEW, None)
    assert accepted.generation == refusing.generation + 1
    entry = accepted.state_history[-1]
    assert (entry.by, entry.at) == ("ann", at(9))
    assert OLD in entry.reason
    assert NEW in entry.reason
    assert accept_certificate(accepted, NEW, by="ann", now=at(10)) is accepted


@pytest.mark.parametrize("shown", [(OLD,), (OLD, NEW), (OLD, NEW, OLD)])
def test_only_the_certificate_that_is_presented_now_can_be_accepted(
    worker: Worker, shown: tuple[str, ...]
) -> None:
    with pytest.raises(Conflict, match="presents"):
        accept_certificate(presenting(worker, *shown), OTHER, by="ann", now=at(9))


def test_the_certificate_of_a_worker_that_is_to_go_is_not_accepted(worker: Worker) -> None:
    going = request(presenting(worker, OLD, NEW), Action.DELETE, by="ann", now=at(5))
    with pytest.raises(ActionRefused):
        accept_certificate(going, NEW, by="ann", now=at(9))


# The connection.


def published(worker: Worker, *states: MonitorState) -> list[bool]:
    """Which of connected (True) and disconnected (False) is published on the way through these states."""
    changes = []
    for second, state in enumerate(states):
        before, worker = worker, record_connection(worker, state, reason="", at=at(second))
        if worker.connection.published is not before.connection.published:
            changes.append(bool(worker.connection.published))
        assert worker.connection.status is state
        assert worker.connection.is_connected is (state is CONNECTED)
    return changes


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((CONNECTING, MonitorState.AUTHENTICATING, CONNECTED), [True]),
        ((CONNECTED, RECONNECTING, CONNECTED), [True]),
        ((CONNECTED, RECONNECTING, FAILED, CONNECTING, FAILED, CONNECTING, FAILED), [True, False]),
        ((CONNECTED, RECONNECTING, FAILED, CONNECTING, CONNECTED), [True, False, True]),
        ((CONNECTED, DISCONNECTED), [True, False]),
        ((CONNECTING, FAILED, CONNECTING, FAILED), [False]),
        ((DISABLED,), []),
        ((CONNECTING, DISCONNECTED), []),
    ],
)
def test_a_connection_and_its_end_are_published_once_and_reconnections_never(
    worker: Worker, states: tuple[MonitorState, ...], expected: list[bool]
) -> None:
    assert published(worker, *states) == expected


def test_a_worker_that_no_longer_runs_is_not_connected(worker: Worker) -> None:
    connected = record_connection(worker, CONNECTED, reason="", at=at(1))
    stopping = move(connected, STOPPING, by="lcm", reason="asked", now=at(2))
    assert (stopping.connection.is_connected, stopping.connection.published) == (False, False)
    late = record_connection(stopping, CONNECTED, reason="", at=at(3))
    assert (late.connection.is_connected, late.connection.status, late.connection.published) == (
        False,
        DISCONNECTED,
        False,
    )


def test_a_draining_worker_stays_connected(worker: Worker) -> None:
    connected = record_connection(worker, CONNECTED, reason="", at=at(1))
    assert move(connected, DRAINING, by="lcm", reason="", now=at(2)).connection.is_connected


def test_a_report_of_the_connection_that_was_overtaken_changes_nothing(worker: Worker) -> None:
    def published(worker: Worker, state: MonitorState, sequence: int, stream: str = "run-1") -> Worker:
        mark = ActivityMark(stream=stream, last_sequence=sequence)
        return record_connection(worker, state, reason="", at=at(sequence), mark=mark)

    connected = published(worker, CONNECTED, 2)
    assert published(connected, RECONNECTING, 1) == connected
    assert published(connected, CONNECTED, 2) == connected
    assert published(connected, RECONNECTING, 3).connection.status is RECONNECTING
    assert published(connected, RECONNECTING, 1, "run-2").connection.status is RECONNECTING


# Activity.


def event(seconds: float, category: str = "start_lab") -> ActivityEvent:
    return ActivityEvent(category=category, at=at(seconds), lab_id="l")


def seen(worker: Worker, events: list[ActivityEvent], last: int, stream: str = "run-1") -> Worker:
    mark = ActivityMark(stream=stream, last_sequence=last)
    return record_activity(worker, events, mark=mark, now=at(1_000), keep=10)


def test_the_newest_event_is_the_last_activity_and_the_newest_ten_are_kept(worker: Worker) -> None:
    worker = seen(worker, [event(n) for n in range(25)], last=25)
    assert worker.activity.last_at == at(24)
    assert [e.at for e in worker.activity.recent_events] == [at(n) for n in range(24, 14, -1)]


def test_the_record_says_from_when_on_its_list_is_complete(worker: Worker) -> None:
    worker = seen(worker, [event(n) for n in range(10)], last=10)
    assert worker.activity.listed_since is None
    worker = seen(worker, [event(n) for n in range(10, 12)], last=12)
    assert worker.activity.listed_since == at(1)
    worker = seen(worker, [], last=12)
    assert worker.activity.listed_since == at(1)


def test_a_report_that_is_sent_again_counts_once(worker: Worker) -> None:
    once = seen(worker, [event(1), event(2)], last=2)
    again = seen(once, [event(1), event(2)], last=2)
    assert again.activity.recent_events == once.activity.recent_events
    assert again.activity.mark == once.activity.mark


def test_a_report_that_overlaps_the_last_adds_only_what_is_new(worker: Worker) -> None:
    once = seen(worker, [event(1), event(2)], last=2)
    more = seen(once, [event(2, "published otherwise"), event(3)], last=3)
    assert [e.at for e in more.activity.recent_events] == [at(3), at(2), at(1)]


def test_an_old_report_that_arrives_late_moves_nothing_back(worker: Worker) -> None:
    newer = seen(worker, [event(1), event(2)], last=2)
    late = seen(newer, [event(1)], last=1)
    assert (late.activity.last_at, late.activity.mark) == (newer.activity.last_at, newer.activity.mark)


def test_another_observer_starts_its_own_count(worker: Worker) -> None:
    worker = seen(worker, [event(1)], last=40, stream="run-1")
    worker = seen(worker, [event(2)], last=1, stream="run-2")
    assert worker.activity.last_at == at(2)
    assert worker.activity.mark == ActivityMark(stream="run-2", last_sequence=1)


def test_finding_nothing_is_a_check_and_no_activity(worker: Worker) -> None:
    worker = seen(worker, [event(1)], last=1)
    checked = record_activity(worker, [], mark=None, now=at(2_000), keep=10)
    assert (checked.activity.last_at, checked.activity.checked_at) == (at(1), at(2_000))
    assert checked.activity.mark == worker.activity.mark


def test_a_workers_wrong_clock_does_not_put_activity_into_the_future(worker: Worker) -> None:
    assert seen(worker, [event(999_999)], last=1).activity.last_at == at(1_000)


@given(st.lists(st.lists(st.integers(0, 900), max_size=5), max_size=8), st.data())
def test_the_last_activity_never_moves_back(reports: list[list[int]], data: st.DataObject) -> None:
    worker = new_worker(
        worker_id=WorkerId("w"),
        name="w",
        template_name="small",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=T0,
    )
    for moments in reports:
        last = data.draw(st.integers(0, 20))
        after = seen(worker, [event(moment) for moment in moments], last)
        assert worker.activity.last_at is None or (
            after.activity.last_at is not None and after.activity.last_at >= worker.activity.last_at
        )
        assert len(after.activity.recent_events) <= 10
        worker = after
