"""How LCM itself is doing, as its processes report it: on virtual time."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership
from lcm.control_plane.queries.system import system_view
from lcm.core.health import Health
from lcm.core.telemetry import LoopLagMonitor, Telemetry
from lcm.domain.errors import Unreachable
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Discovered, new_worker
from lcm.rest.schemas import LeadershipClaim
from lcm.rest.system import ControllerState, FleetFinds, OrphanView, ProcessReport, RegionScan, SystemView
from lcm.web.process_reports import ProcessReporter
from support.asgi import request
from support.core import running
from support.virtual_time import VirtualClock
from unit.control_plane.test_operations import KEYS, Plane

CONTROLLERS = ("worker-controller", "resource-scheduler", "lablet-controller")
T0 = datetime(2026, 1, 1, tzinfo=UTC)

LEADS = ControllerState(
    is_leader=True,
    epoch=1,
    coordination="elected",
    is_watching=True,
    last_reconciliation=T0,
    in_progress=1,
    waiting=2,
    scheduled=3,
    retrying=0,
)


def report_of(service: str, **fields: Any) -> ProcessReport:
    report = ProcessReport(
        service=service,
        instance_id="a",
        version="1.0",
        started_at=T0,
        loop_lag_seconds=0.002,
        frozen=(),
        silent_loops=(),
        controller=LEADS,
    )
    return replace(report, **fields)


async def lead(plane: ControlPlane, service: str, instance: str = "a", revision: int = 1) -> None:
    claim = LeadershipClaim(service=service, cluster_id="etcd", revision=revision, instance_id=instance)
    await claim_leadership(plane.records, claim)


async def view_of(plane: ControlPlane) -> SystemView:
    return await system_view(plane.records, plane.caches)


async def codes(plane: ControlPlane) -> list[str]:
    return [problem.code for problem in (await view_of(plane)).problems]


async def test_a_leader_is_shown_with_its_epoch_and_since_when_it_leads(plane: ControlPlane) -> None:
    await lead(plane, "worker-controller", "first")
    await VirtualClock().sleep(100)
    at = plane.records.clock.now()
    await lead(plane, "worker-controller", "second", revision=2)
    await VirtualClock().sleep(100)
    await lead(plane, "worker-controller", "second", revision=2)  # its answer got lost
    plane.caches.processes.note(report_of("worker-controller", instance_id="second"))
    leader = (await view_of(plane)).leaders[0]
    assert (leader.instance_id, leader.epoch, leader.since, leader.is_reporting) == ("second", 2, at, True)


async def test_a_service_whose_leader_does_not_report_is_a_problem_that_says_what_stands_still(
    plane: ControlPlane,
) -> None:
    assert await codes(plane) == []  # nobody can have reported yet
    await VirtualClock().sleep(31)
    for service in CONTROLLERS:
        await lead(plane, service)
        plane.caches.processes.note(report_of(service))
    assert await codes(plane) == []
    standby = replace(LEADS, is_leader=False)
    plane.caches.processes.note(report_of("resource-scheduler", controller=standby))
    [problem] = (await view_of(plane)).problems
    assert (problem.code, "no lablet session gets a worker" in problem.text) == ("no_leader", True)


async def test_a_process_that_reports_no_more_is_silent_and_in_the_end_forgotten(plane: ControlPlane) -> None:
    plane.caches.processes.note(report_of("control-plane", controller=None))
    await VirtualClock().sleep(30)
    assert [process.is_silent for process in (await view_of(plane)).processes] == [False]
    await VirtualClock().sleep(1)
    assert [process.is_silent for process in (await view_of(plane)).processes] == [True]
    assert "silent" in await codes(plane)
    await VirtualClock().sleep(300)
    assert (await view_of(plane)).processes == []


async def test_what_processes_miss_and_different_versions_are_problems(plane: ControlPlane) -> None:
    note = plane.caches.processes.note
    note(report_of("worker-controller", frozen=("coordination store: no answer",)))
    note(report_of("lablet-controller", silent_loops=("lab-discovery",), version="0.9"))
    problems = {problem.code: problem.text for problem in (await view_of(plane)).problems}
    assert list(problems) == ["silent_loop", "frozen", "versions_differ"]
    assert "coordination store: no answer" in problems["frozen"]
    assert "lab-discovery" in problems["silent_loop"]
    assert "0.9, 1.0" in problems["versions_differ"]


async def test_orphans_and_failed_scans_are_shown_and_are_problems(plane: ControlPlane) -> None:
    orphan = OrphanView(
        instance_id="i-1", region="us-east-1", state="running", kind="no_record", worker_id="w", detail="d"
    )
    scans = (
        RegionScan(region="us-east-1", at=T0, error="", found=2, imported=1),
        RegionScan(region="eu-west-1", at=T0, error="credentials refused", found=0, imported=0),
    )
    finds = FleetFinds(
        scans=scans, orphans=(orphan,), orphan_count=1, may_terminate=False, dry_run_reasons={}
    )
    plane.caches.processes.note(report_of("worker-controller", finds=finds))
    view = await view_of(plane)
    assert view.finds == finds
    assert [problem.code for problem in view.problems] == ["scan_failed", "orphans"]


async def test_what_was_found_and_not_adopted_is_not_shown_as_adopted(plane: ControlPlane) -> None:
    adopted = Discovered(owner_id="1", adopted_at=T0, adopted_by="ada")
    for name, discovered in (("found", Discovered(owner_id="1")), ("kept", adopted), ("old", None)):
        worker = new_worker(
            worker_id=WorkerId(name), name=name, template_name="t", aws_region="r", tags={}, by="x", now=T0
        )
        await plane.records.workers.add(replace(worker, imported=True, discovered=discovered))
    found = [(worker.name, worker.is_trusted) for worker in (await view_of(plane)).adopted]
    assert found == [("found", False), ("kept", True), ("old", True)]


async def test_a_scheduler_that_only_reports_is_not_taken_for_one_at_work() -> None:
    plane = Plane()
    body = msgspec.json.encode(report_of("resource-scheduler"))
    headers = {"X-API-Key": KEYS.controller, "X-LCM-Service": "resource-scheduler"}
    presence = plane.parts.plane.records.scheduler
    for _ in range(7):
        assert not presence.is_silent
        assert (await request(plane.parts.app, "POST", "/api/internal/processes", headers, body))[0] == 204
        await plane.clock.sleep(10)
    assert presence.is_silent
    assert len(plane.parts.plane.caches.processes.now()) == 1


class ControlPlaneThatIsAway:
    """Refuses reports until it is back."""

    def __init__(self) -> None:
        self.is_away = True
        self.taken: list[ProcessReport] = []

    async def take(self, report: ProcessReport) -> None:
        if self.is_away:
            raise Unreachable("away")
        self.taken.append(report)


def reporter(send: Callable[[ProcessReport], Awaitable[None]], health: Health) -> ProcessReporter:
    clock = VirtualClock()
    lag = LoopLagMonitor(Telemetry(), clock)
    return ProcessReporter(
        send, service="control-plane", instance_id="a", clock=clock, health=health, lag=lag
    )


async def test_a_process_reports_itself_again_and_again_however_long_nobody_listens() -> None:
    clock, there = VirtualClock(), ControlPlaneThatIsAway()
    health = Health(clock)
    async with running(reporter(there.take, health)):
        started_at = clock.now()
        await clock.sleep(60)
        there.is_away = False
        health.freeze("coordination store", "no answer")
        await clock.sleep(20)
        assert [report.frozen for report in there.taken] == 2 * [("coordination store: no answer",)]
        assert there.taken[0].started_at == started_at
