"""The eight things a running worker gets in a pass: each decides for itself, and they come in this order."""

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.cml.sessions import CmlServer, server_of
from lcm.core.results import Requeue, Success
from lcm.domain.errors import CertificateChanged, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.license import License, LicenseOperation
from lcm.domain.lifecycle import RUNNING, STOPPING, TERMINATING, DesiredStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.domain.pause import PauseReason
from lcm.domain.scaling import ScaleDownPolicy
from lcm.domain.worker import Instance, Worker
from lcm.rest.schemas import IdleCheck, LicenseToken
from lcm.worker_controller.decisions import Maintain, Move, Situation, Wait
from lcm.worker_controller.ports import CmlSystemInformation, LicenseState, MonitorTarget
from lcm.worker_controller.running import (
    desired_state,
    drift,
    refresh,
)
from lcm.worker_controller.running import (
    metrics as measuring,
)
from lcm.worker_controller.running import (
    monitoring as watching,
)
from lcm.worker_controller.running.idle import IdleChecker, could_be_paused
from lcm.worker_controller.running.license import LicenseRegistrar, Next, decide
from lcm.worker_controller.running.pipeline import RunningPipeline
from lcm.worker_controller.running.scale_down import ScaleDown
from lcm.worker_controller.steps import running
from support.core import NOON, a_worker, an_instance, with_fields
from support.fleet import MemoryMonitors
from support.virtual_time import VirtualClock


def a_running_worker(**fields: Any) -> Worker:
    known = {
        "status": RUNNING,
        "ec2_instance_id": InstanceId("i-1"),
        "private_ip": "10.0.0.1",
        "cml_ready": True,
        "cml_version": "2.9.1",
        "cml_certificate_sha256": "a" * 64,
        "pending_since": None,
    }
    return a_worker(**{**known, **fields})


class World:
    """All ports of one pass; what is asked of them is written down in order."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.clock = VirtualClock()
        self.steps: list[str] = []
        self.cml_answers = True
        self.certificate = "a" * 64
        self.next_check_at: datetime | None = None
        monitors = _Monitors(self.steps)
        self.monitors = monitors
        counts: Counter[str] = Counter()
        plane: Any = self
        servers = partial(server_of, use_private_ip=False)
        licenses = LicenseRegistrar(
            plane, plane, servers, lambda: None, self.clock, counts, lambda worker, kind: None, 120.0
        )
        self.tender = RunningPipeline(
            plane,
            plane,
            self.clock,
            use_private_ip=False,
            wait_seconds=2.0,
            metrics_interval_seconds=60.0,
            count_drift=lambda _, kind: self.steps.append(f"2 drift: {kind}"),
            monitors=monitors,
            licenses=licenses,
            idle=IdleChecker(plane, monitors, True, self.clock, counts),
            scale_down=ScaleDown(plane, ScaleDownPolicy(True, 0, 600.0), self.clock, lambda: 5, counts),
        )

    async def report_instance(self, worker: Worker, instance: Instance) -> Worker:
        self.steps.append("2 report_instance")
        return with_fields(worker, private_ip=instance.private_ip, public_ip=instance.public_ip)

    async def get_system_information(self, host: str, pin: str | None) -> CmlSystemInformation:
        self.steps.append("3 get_system_information")
        if not self.cml_answers:
            raise Unreachable("no answer")
        if pin not in (None, self.certificate):
            raise CertificateChanged("another certificate", self.certificate)
        return CmlSystemInformation("2.9.2", True, "a" * 64, {})

    async def report_cml(self, worker: Worker, *, version: str, **_: Any) -> Worker:
        self.steps.append("3 report_cml")
        return with_fields(worker, cml_version=version, cml_ready=True)

    async def report_certificate(self, worker: Worker, sha256: str) -> Worker:
        self.steps.append("3 report_certificate")
        self.worker = with_fields(worker, cml_refused_certificate_sha256=sha256)
        return self.worker

    async def verify(self, worker: Worker) -> Worker:
        self.steps.append("4 verify the record")
        return worker

    async def report_license(self, worker: Worker, step: str, *_: Any) -> Worker:
        self.steps.append(f"6 license {step}")
        return replace(worker, license=replace(worker.license, operation_in_progress=True))

    async def state(self, _: CmlServer) -> LicenseState:
        return LicenseState(is_registered=False, tier=None, failure="", is_free=True)

    async def get_license_token(self, worker: Worker) -> LicenseToken:
        return LicenseToken(token="token")

    async def prepare(self, *_: object) -> str:
        return ""

    async def register(self, _: CmlServer, token: str, *, again: bool) -> str:
        self.steps.append("6 register")
        return ""

    async def detect_worker_idle(self, worker: Worker, _: Any) -> IdleCheck:
        self.steps.append("7 detect_worker_idle")
        return IdleCheck(
            worker_id=worker.id,
            checked_at=NOON,
            telemetry_fetched=True,
            activity_updated=False,
            idle_check_performed=True,
            auto_pause_triggered=False,
            is_idle=True,
            idle_minutes=90.0,
            eligible_for_pause=True,
            in_snooze_period=False,
            next_check_at=self.next_check_at,
        )

    async def drain_worker(self, worker: Worker) -> Worker:
        self.steps.append("8 drain_worker")
        return worker

    async def record_scaling_audit(self, *_: Any) -> None:
        self.steps.append("8 audit")


class _Monitors(MemoryMonitors):
    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self.steps = steps
        self.is_never_measured = False

    def seconds_since_measurement(self, worker_id: WorkerId) -> float | None:
        return None if self.is_never_measured else super().seconds_since_measurement(worker_id)

    def ensure_monitoring(self, target: MonitorTarget) -> None:
        self.steps.append("4 ensure_monitoring")
        super().ensure_monitoring(target)

    def request_measurement(self, worker_id: WorkerId) -> None:
        is_asked_for = self.steps and not self.steps[-1].startswith("4")
        self.steps.append("3 measure" if is_asked_for else "5 measure")
        super().request_measurement(worker_id)


def everything_is_due(world_worker: Worker | None = None) -> tuple[World, Instance]:
    worker = world_worker or a_running_worker(license=License(pending_operation=LicenseOperation.REGISTER))
    world = World(worker)
    world.worker = replace(worker, refresh_requested_at=world.clock.now())
    return world, an_instance(private_ip="10.0.0.2", public_ip=None)


async def test_the_steps_of_a_running_worker_come_in_their_order() -> None:
    world, elsewhere = everything_is_due()
    world.monitors.is_never_measured = True
    result = await world.tender.run(world.worker, elsewhere)
    assert world.steps == [
        "2 drift: address_changed",
        "2 report_instance",
        "3 measure",
        "3 get_system_information",
        "3 report_cml",
        "4 verify the record",
        "4 ensure_monitoring",
        "5 measure",
        "6 license start",
        "6 register",
        "7 detect_worker_idle",
        "8 drain_worker",
        "8 audit",
    ]
    assert isinstance(result, Requeue)  # the license operation goes on


async def test_a_settled_worker_is_only_watched() -> None:
    world = World(a_running_worker())
    world.tender.idle = None
    assert await world.tender.run(world.worker, an_instance(private_ip="10.0.0.1", public_ip=None)) == (
        Success()
    )
    assert world.steps == ["4 verify the record", "4 ensure_monitoring", "5 measure"]


async def test_only_readiness_is_observed_while_cml_boots() -> None:
    world = World(a_running_worker(cml_ready=False))
    world.cml_answers = False
    result = await world.tender.run(world.worker, an_instance(private_ip="10.0.0.1", public_ip=None))
    assert result == Requeue("CML is not ready yet", 2.0)
    assert world.steps == ["3 get_system_information"]


class TestCertificate:
    """Another certificate is reported once and its server sent nothing; the alarms of idle checks go on."""

    async def test_another_certificate_of_a_booting_server_is_reported_and_is_the_reason(self) -> None:
        world = World(a_running_worker(cml_ready=False))
        world.certificate = "b" * 64
        for _ in range(2):
            with pytest.raises(CertificateChanged):
                await world.tender.run(world.worker, an_instance(private_ip="10.0.0.1", public_ip=None))
        assert world.steps.count("3 report_certificate") == 1

    async def test_one_that_a_monitor_meets_is_reported_and_the_idle_check_goes_on(self) -> None:
        world = World(a_running_worker())
        world.certificate = "b" * 64
        world.monitors.refusing.add(world.worker.id)
        await world.tender.run(world.worker, an_instance(private_ip="10.0.0.1", public_ip=None))
        assert "3 report_certificate" in world.steps
        assert "7 detect_worker_idle" in world.steps

    async def test_the_pinned_one_presented_again_is_reported_too(self) -> None:
        world = World(a_running_worker(cml_refused_certificate_sha256="b" * 64))
        await world.tender.run(world.worker, an_instance(private_ip="10.0.0.1", public_ip=None))
        assert "3 report_cml" in world.steps


class TestWishBeforeDrift:
    """Step 1 comes before step 2: whatever EC2 reports, the desired status is first."""

    @pytest.mark.parametrize(
        "seen", [Known(an_instance(state="stopped"), NOON), Absent("gone"), Unknown("no answer")]
    )
    @pytest.mark.parametrize(
        ("wanted", "target"), [(DesiredStatus.STOPPED, STOPPING), (DesiredStatus.TERMINATED, TERMINATING)]
    )
    def test_the_desired_status_wins(self, seen: Any, wanted: DesiredStatus, target: Any) -> None:
        worker = a_running_worker(desired_status=wanted)
        decision = running.decide(Situation(worker, seen, NOON, timedelta(minutes=15)))
        assert isinstance(decision, Move)
        assert decision.to is target

    def test_without_a_request_drift_is_detected(self) -> None:
        assert desired_state.decide(a_running_worker()) is None
        worker, instance = a_running_worker(), an_instance()
        assert drift.decide(worker, Known(instance, NOON)) == Maintain(instance)
        assert drift.decide(worker, Unknown("throttled")) == Wait("throttled")

    def test_a_pause_has_the_reason_idle(self) -> None:
        paused = a_running_worker(desired_status=DesiredStatus.STOPPED, pause_reason=PauseReason.IDLE_TIMEOUT)
        assert desired_state.decide(paused) == Move(STOPPING, "idle")


class TestRefresh:
    def test_a_request_is_carried_out_once(self) -> None:
        worker = a_running_worker(refresh_requested_at=NOON)
        soon = NOON + timedelta(seconds=1)
        assert refresh.is_requested(worker, done_for=None, now=soon)
        assert not refresh.is_requested(worker, done_for=NOON, now=soon)
        assert refresh.is_requested(worker, done_for=NOON - timedelta(seconds=30), now=soon)

    def test_an_old_request_is_not_carried_out_by_the_next_leader(self) -> None:
        worker = a_running_worker(refresh_requested_at=NOON)
        assert not refresh.is_requested(worker, done_for=None, now=NOON + timedelta(minutes=3))

    def test_nothing_is_checked_without_a_request(self) -> None:
        assert not refresh.is_requested(a_running_worker(), done_for=None, now=NOON)

    async def test_a_server_that_does_not_answer_leaves_the_record_as_it_is(self) -> None:
        world, instance = everything_is_due(a_running_worker())
        world.cml_answers = False
        await world.tender.run(world.worker, instance)
        assert "3 report_cml" not in world.steps
        assert "4 ensure_monitoring" in world.steps


class TestWatching:
    def test_a_server_is_watched_only_once_it_is_ready(self) -> None:
        assert watching.target_of(a_running_worker(cml_ready=False), use_private_ip=False) is None

    @pytest.mark.parametrize(
        ("public", "private", "use_private", "host"),
        [
            ("198.51.100.1", "10.0.0.1", False, "198.51.100.1"),
            ("198.51.100.1", "10.0.0.1", True, "10.0.0.1"),
            (None, "10.0.0.1", False, "10.0.0.1"),
            ("198.51.100.1", None, True, None),
        ],
    )
    def test_where_it_is_reached(
        self, public: str | None, private: str | None, use_private: bool, host: str | None
    ) -> None:
        worker = a_running_worker(public_ip=public, private_ip=private)
        target = watching.target_of(worker, use_private_ip=use_private)
        assert (target.server.host if target else None) == host


@pytest.mark.parametrize(("age", "is_due"), [(None, True), (0.0, False), (60.0, False), (60.1, True)])
def test_load_is_measured_when_the_last_measurement_is_older_than_the_interval(
    age: float | None, is_due: bool
) -> None:
    assert measuring.is_due(age_seconds=age, interval_seconds=60.0) is is_due


REGISTERED = LicenseState(is_registered=True, tier="CML_Enterprise", failure="", is_free=False)
ON_ITS_WAY = LicenseState(is_registered=False, tier=None, failure="", is_free=False)
FREE = LicenseState(is_registered=False, tier=None, failure="", is_free=True)
FAILED = LicenseState(is_registered=False, tier=None, failure="no such token", is_free=True)


@pytest.mark.parametrize(
    ("operation", "state", "was_requested", "then"),
    [
        (LicenseOperation.REGISTER, REGISTERED, False, Next.COMPLETE),
        (LicenseOperation.REGISTER, FAILED, False, Next.REGISTER),
        (LicenseOperation.REGISTER, FAILED, True, Next.FAIL),
        (LicenseOperation.REGISTER, ON_ITS_WAY, True, Next.WAIT),
        (LicenseOperation.DEREGISTER, FREE, False, Next.COMPLETE),
        (LicenseOperation.DEREGISTER, ON_ITS_WAY, False, Next.DEREGISTER),
        (LicenseOperation.DEREGISTER, ON_ITS_WAY, True, Next.WAIT),
        (LicenseOperation.DEREGISTER, REGISTERED, True, Next.DEREGISTER),
    ],
)
def test_what_cml_says_decides_what_comes_next_in_a_license_operation(
    operation: LicenseOperation, state: LicenseState, was_requested: bool, then: Next
) -> None:
    assert decide(operation, state, was_requested=was_requested) is then


def test_cml_is_asked_for_evidence_only_if_a_pause_is_due() -> None:
    assert not could_be_paused(a_running_worker(), NOON)
    assert not could_be_paused(a_running_worker(target_pause_at=NOON + timedelta(minutes=1)), NOON)
    assert could_be_paused(a_running_worker(target_pause_at=NOON), NOON)


async def test_the_next_check_comes_in_time_though_the_control_planes_clock_is_far_ahead() -> None:
    worker = a_running_worker()
    world = World(worker)
    world.next_check_at = NOON + timedelta(minutes=5)
    await world.tender.run(worker, an_instance(private_ip="10.0.0.1"))
    assert world.tender.idle is not None
    assert not world.tender.idle.is_due(worker)
    await world.clock.sleep(300)
    assert world.tender.idle.is_due(worker)
