"""What a move writes down, and what a status implies about the rest of the record."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from lcm.domain.capacity import Capacity
from lcm.domain.errors import IllegalTransition
from lcm.domain.lablet.admission import expect_lab
from lcm.domain.lablet.claim import Claim, ports_of
from lcm.domain.launch import InstanceId, LaunchIntent
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    UNKNOWN,
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.requests import retag
from lcm.domain.transitions import attach_instance, move, without_launch_intent
from lcm.domain.worker import HISTORY_LIMIT, HistoryEntry, Worker
from support.core import IMAGE, NOON, SPEC, a_worker, an_instance

LATER = NOON + timedelta(minutes=1)
INTENT = LaunchIntent(generation=1, client_token="lcm-1", spec=SPEC, requested_at=NOON)
ALIVE: dict[str, Any] = {
    "launch_intent": INTENT,
    "ec2_instance_id": InstanceId("i-1"),
    "public_ip": "198.51.100.5",
    "private_ip": "10.0.0.5",
    "cml_ready": True,
    "cml_certificate_sha256": "ab" * 32,
    "pending_since": NOON,
}


def moved(worker: Worker, target: WorkerStatus, *, observed: bool = False) -> Worker:
    return move(worker, target, by="controller", reason="because", now=LATER, observed=observed)


def test_a_new_worker_is_pending_and_its_story_begins() -> None:
    worker = a_worker()
    assert worker.status is PENDING
    assert worker.desired_status is DesiredStatus.RUNNING
    assert worker.pending_since == NOON
    assert worker.state_history == (
        HistoryEntry(source=None, target=PENDING, by="ada", reason="created", at=NOON),
    )


def test_a_move_is_written_down_with_from_to_by_reason_and_time() -> None:
    worker = moved(a_worker(), PROVISIONING)
    assert worker.state_history[-1] == HistoryEntry(
        source=PENDING, target=PROVISIONING, by="controller", reason="because", at=LATER
    )
    assert (worker.status_reason, worker.updated_at) == ("because", LATER)


def test_a_line_of_the_timeline_is_spelled_from_and_to() -> None:
    line = msgspec.json.decode(msgspec.json.encode(moved(a_worker(), PROVISIONING).state_history[-1]))
    assert set(line) == {"from", "to", "by", "principal_id", "reason", "at"}
    assert (line["from"], line["to"]) == ("pending", "provisioning")


def test_the_timeline_keeps_the_newest_hundred_lines() -> None:
    worker = a_worker(status=RUNNING)
    for _ in range(HISTORY_LIMIT):
        worker = moved(moved(worker, DRAINING), RUNNING)
    assert HISTORY_LIMIT == 100
    assert len(worker.state_history) == HISTORY_LIMIT
    assert worker.state_history[0].by == "controller"  # the creation has been forgotten
    assert worker.state_history[-1].target is RUNNING


def test_however_much_is_noted_the_record_knows_since_when_the_status_is_true() -> None:
    worker = moved(moved(a_worker(status=RUNNING), DRAINING), RUNNING)
    for change in range(2 * HISTORY_LIMIT):
        worker = retag(worker, {"change": str(change)}, by="ann", now=LATER + timedelta(hours=1))
    assert len(worker.state_history) == HISTORY_LIMIT
    assert worker.status_since == LATER
    stopped = move(worker, STOPPING, by="controller", reason="because", now=LATER + timedelta(hours=2))
    assert sum(month.running_seconds for month in stopped.use) == 2 * 3600 + 60


def test_a_move_to_the_same_status_is_a_note_and_no_transition() -> None:
    worker = a_worker(status=RUNNING, cml_ready=True)
    noted = moved(worker, RUNNING)
    assert noted.status_reason == "because"
    assert noted.state_history == worker.state_history
    assert noted.cml.is_ready


def test_a_refused_move_leaves_the_old_record_alone() -> None:
    worker = a_worker()
    with pytest.raises(IllegalTransition):
        moved(worker, RUNNING)
    assert worker == a_worker()


@pytest.mark.parametrize(
    ("source", "target", "observed", "is_ready"),
    [
        (RUNNING, DRAINING, False, True),
        (DRAINING, RUNNING, False, True),
        (RUNNING, STOPPING, False, False),
        (RUNNING, TERMINATING, False, False),
        (RUNNING, PENDING, False, False),
        (RUNNING, FAILED, False, False),
        (RUNNING, STARTING, True, False),
        (RUNNING, STOPPED, True, False),
        (RUNNING, TERMINATED, True, False),
        (RUNNING, UNKNOWN, True, False),
        (DRAINING, STOPPING, False, False),
        (DRAINING, UNKNOWN, True, False),
    ],
)
def test_cml_is_ready_only_while_the_worker_runs_or_drains(
    source: WorkerStatus, target: WorkerStatus, observed: bool, is_ready: bool
) -> None:
    assert moved(a_worker(status=source, **ALIVE), target, observed=observed).cml.is_ready is is_ready


def test_a_stopped_worker_keeps_its_instance_and_loses_its_public_address() -> None:
    worker = moved(a_worker(status=STOPPING, **ALIVE), STOPPED)
    assert worker.instance.public_ip is None
    assert worker.instance.private_ip == "10.0.0.5"
    assert worker.instance.id == "i-1"
    assert worker.launch.intent == INTENT


LAB = Claim(session_id="with a lab", attempt=1, needs=Capacity(cpu=1), ports={"ssh": 2000}, at=NOON)
NO_LAB = Claim(session_id="without", attempt=1, needs=Capacity(cpu=1), ports={"ssh": 2001}, at=NOON)


def test_a_stopped_worker_keeps_the_claims_of_labs_that_may_be_on_its_disk() -> None:
    worker = a_worker(status=STOPPING, **ALIVE, claims=(LAB, NO_LAB))
    worker = expect_lab(worker, "with a lab", 1, lab_generation=1, now=NOON)
    stopped = moved(worker, STOPPED)
    assert stopped.sessions == ("with a lab",)
    assert ports_of(stopped.claims) == {2000}


@pytest.mark.parametrize("target", [PENDING, TERMINATED])
def test_with_its_instance_a_worker_loses_every_claim(target: WorkerStatus) -> None:
    nominations = {"waiting": NOON}
    worker = a_worker(status=STOPPED, **ALIVE, claims=(LAB, NO_LAB), nominations=nominations)
    gone = moved(expect_lab(worker, "with a lab", 1, lab_generation=1, now=NOON), target)
    assert (gone.claims, gone.nominations, gone.freed_ports) == ((), {}, {})


def test_a_terminated_worker_is_wanted_terminated_and_has_no_address() -> None:
    worker = moved(a_worker(status=RUNNING, **ALIVE), TERMINATED, observed=True)
    assert worker.desired_status is DesiredStatus.TERMINATED
    assert (worker.instance.public_ip, worker.instance.private_ip) == (None, None)
    assert worker.instance.id == "i-1"  # for the audit


@pytest.mark.parametrize("source", [RUNNING, STOPPED])
def test_a_worker_whose_instance_is_missing_starts_anew(source: WorkerStatus) -> None:
    worker = moved(a_worker(status=source, **ALIVE), PENDING)
    assert worker.instance.id is None
    assert worker.launch.intent is None
    assert (worker.instance.public_ip, worker.instance.private_ip) == (None, None)
    assert worker.cml.certificate_sha256 is None
    assert worker.pending_since == LATER


def test_a_retried_worker_keeps_the_instance_it_may_still_have() -> None:
    worker = moved(a_worker(status=FAILED, **ALIVE), PENDING)
    assert worker.instance.id == "i-1"
    assert worker.launch.intent == INTENT
    assert worker.cml.certificate_sha256 == ALIVE["cml_certificate_sha256"]


@pytest.mark.parametrize(
    ("source", "target", "observed", "is_over"),
    [
        (PENDING, PROVISIONING, False, False),
        (PROVISIONING, STARTING, False, False),
        (STARTING, RUNNING, False, True),
        (PROVISIONING, FAILED, False, True),
        (STARTING, TERMINATING, False, True),
        (PENDING, TERMINATED, False, True),
        (PROVISIONING, STOPPED, True, True),
    ],
)
def test_the_way_to_running_ends_at_running_or_when_it_is_given_up(
    source: WorkerStatus, target: WorkerStatus, observed: bool, is_over: bool
) -> None:
    worker = moved(a_worker(status=source), target, observed=observed)
    assert (worker.pending_since is None) is is_over


def test_an_attached_instance_is_recorded_with_its_image() -> None:
    worker = attach_instance(a_worker(launch_intent=INTENT), an_instance(), now=LATER)
    assert worker.instance.id == "i-1"
    assert worker.instance.type == "m5zn.metal"
    assert (worker.instance.public_ip, worker.instance.private_ip) == ("198.51.100.5", "10.0.0.5")
    assert (worker.instance.ami_id, worker.instance.ami_name) == (IMAGE.id, IMAGE.name)
    assert (worker.instance.ami_description, worker.instance.ami_creation_date) == (
        IMAGE.description,
        IMAGE.creation_date,
    )
    assert not worker.has_unresolved_launch


def test_an_instance_with_another_ami_than_intended_does_not_get_the_intended_name() -> None:
    worker = attach_instance(a_worker(launch_intent=INTENT), an_instance(image_id="ami-2"), now=LATER)
    assert (worker.instance.ami_id, worker.instance.ami_name) == ("ami-2", None)


def test_a_new_address_replaces_the_old_one() -> None:
    worker = attach_instance(a_worker(**ALIVE), an_instance(public_ip="203.0.113.9"), now=LATER)
    assert worker.instance.public_ip == "203.0.113.9"


def test_a_void_launch_is_forgotten_with_its_instance() -> None:
    worker = without_launch_intent(a_worker(**ALIVE), reason="it is gone", now=LATER)
    assert (worker.launch.intent, worker.instance.id) == (None, None)
    assert worker.status_reason == "it is gone"
    assert not worker.may_have_instance


def test_a_void_launch_leaves_no_address_behind() -> None:
    worker = without_launch_intent(a_worker(**ALIVE), reason="it is gone", now=LATER)
    assert (worker.instance.public_ip, worker.instance.private_ip) == (None, None)
    assert worker.cml.certificate_sha256 is None


@pytest.mark.parametrize(
    ("launch", "instance_id", "may_have", "is_unresolved"),
    [
        (None, None, False, False),
        (INTENT, None, True, True),
        (INTENT, InstanceId("i-1"), True, False),
        (None, InstanceId("i-1"), True, False),
    ],
)
def test_an_intended_launch_without_a_known_instance_is_unresolved(
    launch: LaunchIntent | None, instance_id: InstanceId | None, may_have: bool, is_unresolved: bool
) -> None:
    worker = a_worker(launch_intent=launch, ec2_instance_id=instance_id)
    assert (worker.may_have_instance, worker.has_unresolved_launch) == (may_have, is_unresolved)


@pytest.mark.parametrize(
    ("state", "is_gone"),
    [
        ("pending", False),
        ("running", False),
        ("stopped", False),
        ("shutting-down", True),
        ("terminated", True),
    ],
)
def test_an_instance_on_its_way_out_counts_as_gone(state: str, is_gone: bool) -> None:
    assert an_instance(state=state).is_gone is is_gone


@pytest.mark.parametrize(
    ("public_ip", "private_ip", "has_address"),
    [(None, None, False), ("198.51.100.5", None, True), (None, "10.0.0.5", True), ("", "", False)],
)
def test_an_instance_has_an_address_if_it_has_either(
    public_ip: str | None, private_ip: str | None, has_address: bool
) -> None:
    assert an_instance(public_ip=public_ip, private_ip=private_ip).has_address is has_address
