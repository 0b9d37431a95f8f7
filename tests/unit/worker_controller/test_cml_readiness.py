"""A CML that never becomes ready raises an alarm, says what to check and is stopped unless held (D-24)."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from lcm.control_plane.commands.hold_worker import hold_worker
from lcm.control_plane.queries.explain import explain_worker
from lcm.control_plane.streaming.event_names import WorkerEvent, event_of
from lcm.domain.errors import NoCml, Unreachable
from lcm.domain.idle import IdlePolicy
from lcm.domain.lifecycle import DRAINING, RUNNING, STARTING, STOPPED, DesiredStatus
from lcm.domain.readiness import CmlContact
from lcm.domain.requests import refresh
from lcm.domain.worker import Action, Worker
from lcm.rest.schemas import Explanation
from lcm.worker_controller.ports import CmlSystemInformation
from lcm.worker_controller.settings import WorkerControllerSettings
from support.fleet import Fleet, MemoryCml, MemoryMonitors

MINUTE, HOUR = 60.0, 3600.0
NEVER = 1e9


class Deaf(MemoryCml):
    """Answers nothing, or not as CML does."""

    failure: Unreachable = Unreachable("CML at 10.0.0.1: timed out")

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        raise self.failure


class NoMonitors(MemoryMonitors):
    """Nothing is monitored, so that no telemetry can be read."""

    async def fetch_telemetry(self, worker_id: object) -> None:
        return None


def never_ready(fleet: Fleet) -> MemoryCml:
    return MemoryCml(fleet.cloud, boot_seconds=NEVER)


@asynccontextmanager
async def a_fleet(
    cml_of: Callable[[Fleet], MemoryCml] = never_ready,
    settings: WorkerControllerSettings | None = None,
    policy: IdlePolicy | None = None,
) -> AsyncIterator[Fleet]:
    fleet = Fleet(settings)
    fleet.monitors, fleet.cml = NoMonitors(), cml_of(fleet)
    policies = dataclasses.replace(fleet.plane.policies, idle=policy or IdlePolicy())
    fleet.plane = dataclasses.replace(fleet.plane, policies=policies)
    async with fleet.running():
        yield fleet


async def running(fleet: Fleet, template: str = "small") -> Worker:
    return await fleet.until(await fleet.create(template=template), RUNNING)


def alarms(fleet: Fleet) -> list[Worker]:
    """The commits that were published as `worker.cml.not_ready`."""
    pairs = zip([None, *fleet.commits], fleet.commits, strict=False)
    return [after for before, after in pairs if event_of(before, after) is WorkerEvent.CML_NOT_READY]


async def explained(fleet: Fleet, worker: Worker) -> Explanation:
    plane = fleet.plane
    return explain_worker(plane.records, plane.caches, plane.policies, await fleet.get(worker))


@pytest.mark.parametrize(("template", "minutes"), [("small", 15), ("metal", 40)])
async def test_a_cml_that_is_not_ready_in_its_time_raises_one_alarm(template: str, minutes: float) -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet, template)
        await fleet.clock.sleep(minutes * MINUTE)
        assert alarms(fleet) == []
        await fleet.clock.sleep(2 * MINUTE)
        [alarm] = alarms(fleet)
        assert alarm.cml.wait is not None
        assert alarm.cml.wait.since == (await fleet.get(worker)).status_since
        assert [known.is_cml_overdue for known in fleet.plane.caches.worker_cache] == [True]
        await fleet.clock.sleep(30 * MINUTE)
        assert len(alarms(fleet)) == 1


async def test_the_setting_replaces_the_time_by_type() -> None:
    async with a_fleet(policy=IdlePolicy(cml_ready_within=timedelta(minutes=5))) as fleet:
        await running(fleet, "metal")
        await fleet.clock.sleep(7 * MINUTE)
        assert len(alarms(fleet)) == 1


async def test_a_boot_within_a_minute_writes_nothing_about_the_wait() -> None:
    async with Fleet().running() as fleet:
        await running(fleet)
        await fleet.clock.sleep(10 * MINUTE)
        assert all(commit.cml.wait is None for commit in fleet.commits)


async def test_a_worker_whose_cml_never_becomes_ready_is_stopped_an_idle_timeout_later() -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet)
        due = timedelta(minutes=15) + fleet.plane.policies.idle.timeout
        await fleet.clock.sleep(20 * MINUTE)
        next_points = {point.code: point.at for point in (await explained(fleet, worker)).next}
        stopped = await fleet.until(worker, STOPPED, within_seconds=2 * HOUR)
        assert stopped.pause.last_paused_at is not None
        late = stopped.pause.last_paused_at - (worker.status_since + due)
        assert timedelta() < late < timedelta(minutes=6)
        assert next_points == {"pause": worker.status_since + due}
        [reason] = [line.reason for line in stopped.state_history if "CML was not ready" in line.reason]
        assert reason.endswith("minutes")
        assert stopped.cml.wait is None


async def test_a_held_worker_is_not_stopped_although_its_cml_never_becomes_ready() -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet)
        until = fleet.clock.now() + timedelta(hours=5)
        await hold_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, until=until, reason="repair", by="ann"
        )
        await fleet.clock.sleep(4 * HOUR)
        assert (await fleet.get(worker)).status is RUNNING
        assert len(alarms(fleet)) == 1


async def test_without_auto_pause_a_cml_that_never_becomes_ready_only_raises_the_alarm() -> None:
    async with a_fleet(policy=IdlePolicy(auto_pause_enabled=False)) as fleet:
        worker = await running(fleet)
        await fleet.clock.sleep(6 * HOUR)
        account = await explained(fleet, worker)
        assert (await fleet.get(worker)).desired_status is DesiredStatus.RUNNING
        assert [point.code for point in account.next] == []
        assert "cml_not_ready" in [point.code for point in account.holding]
        assert len(alarms(fleet)) == 1


async def test_scale_down_drains_a_worker_whose_cml_never_becomes_ready() -> None:
    settings = WorkerControllerSettings(scale_down_enabled=True)
    async with a_fleet(settings=settings) as fleet:
        worker = await running(fleet)
        await fleet.until(worker, DRAINING, within_seconds=2 * HOUR)
        await fleet.until(worker, STOPPED)


async def test_a_cml_that_is_ready_late_ends_the_alarm_and_has_the_whole_idle_timeout() -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet)
        await fleet.clock.sleep(70 * MINUTE)
        assert (await fleet.get(worker)).cml.wait is not None
        fleet.cml._boot_seconds = 0.0
        await fleet.clock.sleep(MINUTE)
        ready = await fleet.get(worker)
        assert (ready.cml.is_ready, ready.cml.wait) == (True, None)
        assert [known.is_cml_overdue for known in fleet.plane.caches.worker_cache] == [False]


async def test_another_certificate_is_no_proof_that_nobody_uses_the_worker() -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet)
        await fleet.clock.sleep(2 * MINUTE)
        fleet.cml.certificate = "b" * 64
        await fleet.clock.sleep(6 * HOUR)
        now = await fleet.get(worker)
        assert now.cml.wait is not None
        assert now.cml.wait.last.contact is CmlContact.OTHER_CERTIFICATE
        assert now.desired_status is DesiredStatus.RUNNING
        account = await explained(fleet, worker)
        assert account.next == []
        assert "cause_certificate" in [point.code for point in account.holding]
        assert len(alarms(fleet)) == 1


async def test_a_cml_that_was_ready_before_is_not_proven_unused_by_being_not_ready() -> None:
    async with a_fleet() as fleet:
        fleet.cml._boot_seconds = 30.0
        worker = await running(fleet)
        await fleet.clock.sleep(MINUTE)
        fleet.cml._boot_seconds = NEVER
        await fleet.workers.change(worker.id, lambda known: refresh(known, now=fleet.clock.now()))
        await fleet.clock.sleep(6 * HOUR)
        now = await fleet.get(worker)
        assert now.cml.wait is not None
        assert now.cml.wait.was_ready
        assert now.desired_status is DesiredStatus.RUNNING


@pytest.mark.parametrize(
    ("failure", "contact", "causes"),
    [
        (
            Unreachable("CML at 10.0.0.1: timed out"),
            CmlContact.NO_ANSWER,
            ["cause_address", "cause_security_group", "cause_setup", "cause_image"],
        ),
        (
            NoCml("CML at 10.0.0.1 answered 502 to /api/v0/system_information"),
            CmlContact.NO_CML,
            ["cause_setup", "cause_image"],
        ),
        (None, CmlContact.NOT_READY, ["cause_setup", "cause_kvm", "cause_image"]),
    ],
)
async def test_the_explanation_names_what_was_tried_last_and_the_causes_it_leaves_in_order(
    failure: Unreachable | None, contact: CmlContact, causes: list[str]
) -> None:
    def cml_of(fleet: Fleet) -> MemoryCml:
        if failure is None:
            return never_ready(fleet)
        deaf = Deaf(fleet.cloud)
        deaf.failure = failure
        return deaf

    async with a_fleet(cml_of) as fleet:
        worker = await running(fleet)
        await fleet.clock.sleep(5 * MINUTE)
        booting = await explained(fleet, worker)
        assert "cml_booting" in [point.code for point in booting.holding]
        assert "cml_not_ready_alarm" in [point.code for point in booting.next]
        await fleet.clock.sleep(15 * MINUTE)
        wait = (await fleet.get(worker)).cml.wait
        assert wait is not None
        assert wait.last.contact is contact
        account = await explained(fleet, worker)
        [late] = [point for point in account.holding if point.code == "cml_not_ready"]
        assert wait.last.detail in late.text
        assert [point.code for point in account.holding if point.code.startswith("cause_")] == causes


async def test_a_worker_of_a_new_leader_keeps_the_beginning_of_its_wait() -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet)
        await fleet.clock.sleep(5 * MINUTE)
        wait = (await fleet.get(worker)).cml.wait
        fleet.leader.election.resign()
        await fleet.clock.sleep(5 * MINUTE)
        now = (await fleet.get(worker)).cml.wait
        assert wait is not None
        assert now is not None
        assert now.since == wait.since


async def test_a_start_ends_the_wait_of_the_run_before() -> None:
    async with a_fleet() as fleet:
        worker = await running(fleet)
        await fleet.clock.sleep(30 * MINUTE)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, STARTING)
        again = await fleet.until(worker, RUNNING)
        await fleet.clock.sleep(5 * MINUTE)
        wait = (await fleet.get(worker)).cml.wait
        assert wait is not None
        assert (wait.since, wait.alarmed_at) == (again.status_since, None)
