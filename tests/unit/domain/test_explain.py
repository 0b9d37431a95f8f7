"""Every state is explained, by the rules that decide."""

from datetime import timedelta

import pytest

from lcm.domain.explain import explain
from lcm.domain.idle import IdlePolicy
from lcm.domain.lifecycle import DRAINING, FAILED, RUNNING, STOPPED, DesiredStatus, WorkerStatus
from lcm.domain.pause import DECIDED, PauseReason
from lcm.domain.requests import request, stop_after_extraction
from lcm.domain.worker import Action, CmlHealth, Hold, Worker
from support.claims import claims_of
from support.core import NOON, a_worker, with_fields

MINUTE = timedelta(minutes=1)


def codes(worker: Worker, policy: IdlePolicy | None = None) -> tuple[list[str], list[str]]:
    account = explain(worker, policy or IdlePolicy(), NOON)
    return [point.code for point in account.holding], [point.code for point in account.next]


def running(**fields: object) -> Worker:
    return a_worker(status=RUNNING, cml_ready=True, created_at=NOON - 30 * MINUTE, **fields)


@pytest.mark.parametrize("desired", DesiredStatus)
@pytest.mark.parametrize("status", WorkerStatus)
def test_no_state_is_left_without_an_explanation(status: WorkerStatus, desired: DesiredStatus) -> None:
    account = explain(a_worker(status=status, desired_status=desired), IdlePolicy(), NOON)
    assert account.summary
    assert account.holding or account.next


def test_a_used_worker_says_when_it_will_be_paused() -> None:
    account = explain(running(), IdlePolicy(), NOON)
    (pause,) = account.next
    assert (pause.code, pause.at) == ("pause", NOON + 30 * MINUTE)


@pytest.mark.parametrize(("within", "is_extracting"), [(None, False), (MINUTE, True)])
def test_a_pause_is_announced_with_what_becomes_of_running_nodes(
    within: timedelta | None, is_extracting: bool
) -> None:
    (pause,) = explain(running(), IdlePolicy(extract_within=within), NOON).next
    assert "running nodes are powered off" in pause.text
    assert ("configurations are extracted" in pause.text) is is_extracting


def test_a_stop_that_waits_for_configurations_says_until_when() -> None:
    worker = request(running(), Action.STOP, by="ann", now=NOON)
    waiting = stop_after_extraction(worker, MINUTE, by="controller", now=NOON)
    assert waiting is not None
    [point] = [p for p in explain(waiting, IdlePolicy(), NOON).holding if p.code == "extracting"]
    assert point.at == NOON + MINUTE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"hold": Hold(until=NOON + MINUTE, by="ada", reason="exam")}, "held"),
        ({"is_idle_detection_enabled": False}, "detection_disabled"),
        ({"last_activity_at": NOON - MINUTE}, "active"),
        ({"claims": claims_of("lablet-1")}, "active_sessions"),
        ({"nominations": {"lablet-1": NOON + 30 * MINUTE}}, "nominated"),
        ({"cml_ready": False}, "cml_booting"),
        ({"cml_health": CmlHealth(failing=("cml-controller: kvm_vmx_enabled",))}, "no_kvm"),
    ],
)
def test_what_keeps_a_running_worker_is_named(fields: dict[str, object], code: str) -> None:
    worker = with_fields(running(), **fields)
    assert code in codes(worker)[0]


def test_a_worker_without_any_activity_is_new_and_not_said_to_have_been_used() -> None:
    points = {point.code: point for point in explain(running(), IdlePolicy(), NOON).holding}
    assert "active" not in points
    assert points["new"].at == NOON - 30 * MINUTE


@pytest.mark.parametrize(
    "fields", [{"claims": claims_of("lablet-1")}, {"nominations": {"lablet-1": NOON + 30 * MINUTE}}]
)
def test_no_pause_is_announced_for_a_worker_that_sessions_need(fields: dict[str, object]) -> None:
    assert codes(with_fields(running(), **fields))[1] == []


def test_an_idle_worker_shows_the_second_idle_check_it_waits_for() -> None:
    idle = with_fields(running(pause_state=DECIDED, pause_since=NOON), last_activity_at=NOON - 90 * MINUTE)
    assert "second_look" in codes(idle)[0]


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (PauseReason.IDLE_TIMEOUT, "paused"),
        (PauseReason.EXTERNAL, "stopped_outside"),
        (PauseReason.MANUAL, "stop_requested"),
    ],
)
def test_a_stopped_worker_says_who_stopped_it(why: PauseReason, code: str) -> None:
    worker = a_worker(status=STOPPED, desired_status=DesiredStatus.STOPPED, pause_reason=why)
    assert code in codes(worker)[0]


def test_a_failed_worker_says_that_a_person_must_act() -> None:
    assert codes(a_worker(status=FAILED))[1] == ["person"]


def test_a_draining_worker_says_what_it_waits_for() -> None:
    worker = a_worker(status=DRAINING, desired_status=DesiredStatus.STOPPED, claims=claims_of("a", "b"))
    holding, coming = codes(worker)
    assert ("active_sessions" in holding, coming) == (True, ["stop"])
