"""Every step as a table: what people want × what EC2 shows → what is decided."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from lcm.domain.launch import Ami, InstanceId, LaunchIntent, LaunchSpec
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
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.domain.requests import drain, request
from lcm.domain.worker import Action, Instance, Worker
from lcm.worker_controller.decisions import (
    Decision,
    Launch,
    Maintain,
    Move,
    Nothing,
    Situation,
    StartInstance,
    StopInstance,
    TerminateInstance,
    Wait,
    WithdrawLaunchIntent,
)
from lcm.worker_controller.reconciler import STEPS
from support import core
from support.claims import claims_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ID = InstanceId("i-1")

WANT_RUNNING = DesiredStatus.RUNNING
WANT_STOPPED = DesiredStatus.STOPPED
WANT_TERMINATED = DesiredStatus.TERMINATED

GONE = Absent("missing in 3 complete reads over 0:05:00")
NO_IDEA = Unknown("EC2 does not answer")


def shows(state: str, *, address: bool = True) -> Known[Instance]:
    ip = "198.51.100.1" if address else None
    instance = Instance(
        id=ID, region="us-east-1", state=state, instance_type="t3.small", image_id="ami-1", public_ip=ip
    )
    return Known(instance, NOW)


def a_worker(status: WorkerStatus, desired: DesiredStatus) -> Worker:
    return core.a_worker(status=status, desired_status=desired, ec2_instance_id=ID)


def decide(worker: Worker, seen: Observation[Instance], *, minutes: float = 0.0) -> Decision:
    situation = Situation(worker, seen, NOW + timedelta(minutes=minutes), timedelta(minutes=15))
    return STEPS[worker.status](situation)


def moves_to(decision: Decision) -> WorkerStatus:
    assert isinstance(decision, Move), decision
    return decision.to


@pytest.mark.parametrize(
    ("status", "desired", "seen", "expected"),
    [
        # PROVISIONING: wait for EC2 to say running.
        (PROVISIONING, WANT_RUNNING, shows("pending"), Wait),
        (PROVISIONING, WANT_RUNNING, NO_IDEA, Wait),
        (PROVISIONING, WANT_RUNNING, shows("running"), STARTING),
        (PROVISIONING, WANT_STOPPED, shows("running"), STARTING),
        (PROVISIONING, WANT_RUNNING, shows("terminated"), FAILED),
        (PROVISIONING, WANT_RUNNING, shows("shutting-down"), FAILED),
        (PROVISIONING, WANT_RUNNING, GONE, FAILED),
        (PROVISIONING, WANT_RUNNING, shows("stopped"), STOPPED),
        (PROVISIONING, WANT_RUNNING, shows("stopping"), STOPPING),
        (PROVISIONING, WANT_RUNNING, shows("hibernating"), UNKNOWN),
        (PROVISIONING, WANT_TERMINATED, shows("pending"), TERMINATING),
        # STARTING: start it, wait for an address.
        (STARTING, WANT_RUNNING, shows("stopped"), StartInstance),
        (STARTING, WANT_RUNNING, shows("stopping"), Wait),
        (STARTING, WANT_RUNNING, shows("pending"), Wait),
        (STARTING, WANT_RUNNING, NO_IDEA, Wait),
        (STARTING, WANT_RUNNING, shows("running", address=False), Wait),
        (STARTING, WANT_RUNNING, shows("running"), RUNNING),
        (STARTING, WANT_RUNNING, shows("terminated"), FAILED),
        (STARTING, WANT_RUNNING, GONE, FAILED),
        (STARTING, WANT_STOPPED, shows("pending"), STOPPING),
        (STARTING, WANT_TERMINATED, shows("pending"), TERMINATING),
        # RUNNING: what people want first, then drift, then care.
        (RUNNING, WANT_RUNNING, shows("running"), Maintain),
        (RUNNING, WANT_STOPPED, shows("running"), STOPPING),
        (RUNNING, WANT_STOPPED, NO_IDEA, STOPPING),
        (RUNNING, WANT_TERMINATED, shows("running"), TERMINATING),
        (RUNNING, WANT_RUNNING, shows("pending"), STARTING),
        (RUNNING, WANT_RUNNING, shows("stopping"), STOPPING),
        (RUNNING, WANT_RUNNING, shows("stopped"), STOPPED),
        (RUNNING, WANT_RUNNING, shows("shutting-down"), TERMINATING),
        (RUNNING, WANT_RUNNING, shows("terminated"), TERMINATED),
        (RUNNING, WANT_RUNNING, shows("hibernating"), UNKNOWN),
        (RUNNING, WANT_RUNNING, GONE, PENDING),
        (RUNNING, WANT_RUNNING, NO_IDEA, Wait),
        # DRAINING: nothing is assigned yet, so there is nothing to wait for.
        (DRAINING, WANT_STOPPED, shows("running"), STOPPING),
        (DRAINING, WANT_RUNNING, shows("running"), RUNNING),
        (DRAINING, WANT_TERMINATED, shows("running"), TERMINATING),
        # STOPPING: ask until EC2 says stopped.
        (STOPPING, WANT_STOPPED, shows("running"), StopInstance),
        (STOPPING, WANT_RUNNING, shows("running"), StopInstance),
        (STOPPING, WANT_STOPPED, shows("stopping"), Wait),
        (STOPPING, WANT_STOPPED, shows("pending"), Wait),
        (STOPPING, WANT_STOPPED, NO_IDEA, Wait),
        (STOPPING, WANT_STOPPED, shows("stopped"), STOPPED),
        (STOPPING, WANT_STOPPED, GONE, STOPPED),
        (STOPPING, WANT_STOPPED, shows("terminated"), TERMINATED),
        (STOPPING, WANT_TERMINATED, shows("stopping"), TERMINATING),
        # STOPPED: nothing, unless the desired status or the instance changed.
        (STOPPED, WANT_STOPPED, shows("stopped"), Nothing),
        (STOPPED, WANT_STOPPED, NO_IDEA, Nothing),
        (STOPPED, WANT_STOPPED, GONE, Nothing),
        (STOPPED, WANT_STOPPED, shows("running"), RUNNING),
        (STOPPED, WANT_STOPPED, shows("pending"), STARTING),
        (STOPPED, WANT_STOPPED, shows("terminated"), TERMINATED),
        (STOPPED, WANT_RUNNING, shows("stopped"), STARTING),
        (STOPPED, WANT_RUNNING, shows("stopping"), STARTING),
        (STOPPED, WANT_RUNNING, GONE, PENDING),
        (STOPPED, WANT_RUNNING, NO_IDEA, Wait),
        (STOPPED, WANT_TERMINATED, shows("stopped"), TERMINATING),
        # TERMINATING: ask until EC2 says terminated.
        (TERMINATING, WANT_TERMINATED, shows("running"), TerminateInstance),
        (TERMINATING, WANT_TERMINATED, shows("stopped"), TerminateInstance),
        (TERMINATING, WANT_TERMINATED, shows("pending"), TerminateInstance),
        (TERMINATING, WANT_TERMINATED, shows("shutting-down"), Wait),
        (TERMINATING, WANT_TERMINATED, NO_IDEA, Wait),
        (TERMINATING, WANT_TERMINATED, shows("terminated"), TERMINATED),
        (TERMINATING, WANT_TERMINATED, GONE, TERMINATED),
        # FAILED: only people move it on.
        (FAILED, WANT_RUNNING, shows("running"), Nothing),
        (FAILED, WANT_TERMINATED, shows("running"), TERMINATING),
        # UNKNOWN: keep observing.
        (UNKNOWN, WANT_RUNNING, shows("hibernating"), Wait),
        (UNKNOWN, WANT_RUNNING, NO_IDEA, Wait),
        (UNKNOWN, WANT_RUNNING, shows("running"), RUNNING),
        (UNKNOWN, WANT_RUNNING, shows("stopped"), STOPPED),
        (UNKNOWN, WANT_TERMINATED, shows("running"), TERMINATING),
        (UNKNOWN, WANT_RUNNING, GONE, TERMINATED),
        (TERMINATED, WANT_TERMINATED, GONE, Nothing),
    ],
)
def test_a_step_decides_by_what_is_wanted_and_what_is_seen(
    status: WorkerStatus,
    desired: DesiredStatus,
    seen: Observation[Instance],
    expected: WorkerStatus | type[Decision],
) -> None:
    decision = decide(a_worker(status, desired), seen)
    if isinstance(expected, WorkerStatus):
        assert moves_to(decision) is expected
    else:
        assert isinstance(decision, expected)


@pytest.mark.parametrize("status", list(WorkerStatus))
def test_not_knowing_never_leads_to_an_effect_at_ec2(status: WorkerStatus) -> None:
    for desired in DesiredStatus:
        decision = decide(a_worker(status, desired), NO_IDEA)
        assert not isinstance(decision, StartInstance | StopInstance | TerminateInstance | Launch)


class TestPending:
    """PENDING is where money is spent: exactly one instance, or none."""

    def fresh(self, desired: DesiredStatus = WANT_RUNNING) -> Worker:
        return core.with_fields(a_worker(PENDING, desired), ec2_instance_id=None)

    def with_intent(self, desired: DesiredStatus = WANT_RUNNING) -> Worker:
        spec = LaunchSpec(
            region="us-east-1",
            image=Ami(id="ami-1", name="CML-1"),
            instance_type="t3.small",
            security_group_ids=(),
            subnet_id="subnet-1",
            key_name=None,
            tags={},
        )
        intent = LaunchIntent(generation=1, client_token="lcm-1", spec=spec, requested_at=NOW)
        return core.with_fields(self.fresh(desired), launch_intent=intent, launch_generation=1)

    def test_a_new_worker_is_launched(self) -> None:
        assert decide(self.fresh(), Absent("no launch was ever requested")) == Launch()

    def test_an_intended_launch_is_repeated_while_its_instance_is_not_observed(self) -> None:
        assert decide(self.with_intent(), NO_IDEA) == Launch()
        assert decide(self.with_intent(WANT_STOPPED), NO_IDEA) == Launch()

    def test_an_instance_that_exists_is_adopted(self) -> None:
        assert moves_to(decide(self.with_intent(), shows("pending"))) is PROVISIONING
        assert moves_to(decide(a_worker(PENDING, WANT_RUNNING), shows("stopped"))) is PROVISIONING

    def test_a_dead_instance_voids_its_launch(self) -> None:
        assert isinstance(decide(a_worker(PENDING, WANT_RUNNING), shows("terminated")), WithdrawLaunchIntent)
        assert isinstance(decide(a_worker(PENDING, WANT_RUNNING), GONE), WithdrawLaunchIntent)

    def test_an_instance_that_cannot_be_observed_is_waited_for(self) -> None:
        assert isinstance(decide(a_worker(PENDING, WANT_RUNNING), NO_IDEA), Wait)

    def test_a_worker_deleted_before_its_launch_just_ends(self) -> None:
        assert moves_to(decide(self.fresh(WANT_TERMINATED), Absent("never"))) is TERMINATED

    def test_a_worker_deleted_during_its_launch_waits_for_proof_that_nothing_was_launched(self) -> None:
        assert isinstance(decide(self.with_intent(WANT_TERMINATED), NO_IDEA), Wait)
        assert moves_to(decide(self.with_intent(WANT_TERMINATED), GONE)) is TERMINATED

    def test_a_worker_stopped_before_its_launch_is_not_launched(self) -> None:
        assert isinstance(decide(self.fresh(WANT_STOPPED), Absent("never")), Nothing)

    def test_after_fifteen_minutes_it_has_failed(self) -> None:
        assert moves_to(decide(self.fresh(), Absent("never"), minutes=15.1)) is FAILED
        assert moves_to(decide(self.with_intent(), NO_IDEA, minutes=15.1)) is FAILED

    def test_three_launches_without_a_person_asking_are_enough(self) -> None:
        worker = core.with_fields(self.fresh(), unattended_launches=3)
        assert moves_to(decide(worker, Absent("never"))) is FAILED


def test_an_instance_found_by_its_launch_is_recorded_before_it_is_terminated() -> None:
    worker = core.with_fields(a_worker(TERMINATING, WANT_TERMINATED), ec2_instance_id=None)
    decision = decide(worker, shows("running"))
    assert moves_to(decision) is TERMINATING
    assert isinstance(decision, Move)
    assert decision.instance is not None
    assert decision.instance.id == ID


@pytest.mark.parametrize("status", [PROVISIONING, STARTING])
def test_a_launch_that_takes_longer_than_fifteen_minutes_has_failed(status: WorkerStatus) -> None:
    assert isinstance(decide(a_worker(status, WANT_RUNNING), shows("pending"), minutes=14.9), Wait)
    decision = decide(a_worker(status, WANT_RUNNING), shows("pending"), minutes=15.1)
    assert moves_to(decision) is FAILED


def test_a_restart_has_no_such_limit() -> None:
    worker = replace(a_worker(STARTING, WANT_RUNNING), pending_since=None)
    assert isinstance(decide(worker, shows("pending"), minutes=600), Wait)


@pytest.mark.parametrize("ahead", [timedelta(milliseconds=50), timedelta(minutes=5)])
def test_a_stop_cuts_a_drain_short_at_once_though_the_control_planes_clock_is_ahead(ahead: timedelta) -> None:
    running = replace(a_worker(RUNNING, WANT_RUNNING), claims=claims_of("lablet-1"))
    drained = drain(running, deadline=NOW + timedelta(hours=4), by="ann", reason="drain", now=NOW)
    assert isinstance(decide(drained, shows("running")), Maintain)
    stopped = request(drained, Action.STOP, by="bob", now=NOW + ahead)
    assert decide(stopped, shows("running")) == Move(
        STOPPING, "desired status is stopped; sessions cut off: 1"
    )


def test_a_worker_that_keeps_vanishing_is_given_up() -> None:
    worker = core.with_fields(a_worker(RUNNING, WANT_RUNNING), unattended_launches=3)
    assert moves_to(decide(worker, GONE)) is FAILED


def test_drift_is_named_for_the_metrics() -> None:
    decision = decide(a_worker(RUNNING, WANT_RUNNING), GONE)
    assert isinstance(decision, Move)
    assert decision.drift == "instance_missing"


@pytest.mark.parametrize(
    ("status", "target"), [(PROVISIONING, FAILED), (STOPPING, STOPPED), (TERMINATING, TERMINATED)]
)
def test_without_an_instance_there_is_nothing_to_wait_for(status: WorkerStatus, target: WorkerStatus) -> None:
    wanted = WANT_TERMINATED if status is TERMINATING else WANT_STOPPED
    worker = core.with_fields(a_worker(status, wanted), ec2_instance_id=None)
    assert moves_to(decide(worker, Absent("no launch was ever requested"))) is target
