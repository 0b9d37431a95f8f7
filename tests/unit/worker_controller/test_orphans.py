"""Orphans on virtual time: who is found, what is done about it, and above all what is not."""

import itertools
from collections.abc import Awaitable, Callable

import pytest

from lcm.domain.errors import CredentialsRefused, LcmError, Throttled, Unreachable
from lcm.domain.launch import Ami, InstanceId, LaunchSpec, WorkerId, client_token
from lcm.domain.lifecycle import FAILED, PENDING, PROVISIONING, RUNNING, STOPPED, TERMINATED
from lcm.domain.orphans import OrphanKind
from lcm.domain.worker import Action, Instance
from lcm.worker_controller.admin.metrics import register_metrics
from lcm.worker_controller.settings import WorkerControllerSettings
from support.fleet import Fleet
from support.memory_cloud import Delays, Moment

# A filter that finds nothing keeps discovery from importing what these tests leave lying about.
REPORT_ONLY = WorkerControllerSettings(worker_discovery_tag_filter="nothing=here")
SWEEPING = WorkerControllerSettings(
    worker_discovery_tag_filter="nothing=here", orphan_termination_enabled=True
)
MINUTE = 60.0


async def leave_behind(
    fleet: Fleet, worker_id: str = "w-forgotten", token: str | None = None, environment: str = "production"
) -> Instance:
    """An instance with our tags, as a lost record leaves it."""
    tags = {
        "cml-managed": "true",
        "lcm:managed_by": "lablet-cloud-manager",
        "cml-environment": environment,
        "worker_id": worker_id,
    }
    spec = LaunchSpec(
        region="us-east-1",
        image=Ami(id="ami-2", name="CML-2.9.1-20260415"),
        instance_type="t3.small",
        security_group_ids=("sg-1",),
        subnet_id="subnet-1",
        key_name=None,
        tags=tags,
    )
    return await fleet.cloud.launch_instance(spec, token or client_token(WorkerId(worker_id), 1))


def kinds(fleet: Fleet) -> dict[InstanceId, OrphanKind]:
    found = fleet.leader.reconciler.scope.discovery.orphans.found.get("us-east-1", {})
    return {instance_id: orphan.kind for instance_id, orphan in found.items()}


def terminations(fleet: Fleet) -> int:
    return fleet.effects().count("terminate_instance")


def is_alive(fleet: Fleet, instance: Instance) -> bool:
    return not fleet.cloud.instances[instance.id].is_gone


class TestRecordsWithoutMachines:
    @pytest.mark.parametrize("status", [STOPPED, FAILED])
    async def test_a_stopped_worker_whose_instance_vanished_is_ended_after_three_reads(
        self, status: str
    ) -> None:
        async with Fleet(REPORT_ONLY).running() as fleet:
            await fleet.running_worker("other")
            worker = await fleet.create("lost")
            if status == STOPPED:
                await fleet.until(worker, RUNNING)
                await fleet.ask(worker, Action.STOP)
                await fleet.until(worker, STOPPED)
                fleet.cloud.forget(fleet.instance_id(worker))
            else:
                await fleet.until(worker, PROVISIONING)
                instance = fleet.instance_id(worker)
                fleet.cloud.terminate(instance)
                worker = await fleet.until(worker, FAILED)
                fleet.cloud.forget(instance)
            lost_at = fleet.clock.monotonic()
            ended = await fleet.until(worker, TERMINATED, within_seconds=1_500)
            assert fleet.clock.monotonic() - lost_at >= 5 * MINUTE
            assert ended.status_reason.startswith("orphan_detection: missing in 3 complete reads")
            assert fleet.leader.reconciler.scope.discovery.orphans.counts["records_ended"] == 1
            assert terminations(fleet) == 0

    async def test_a_failed_worker_whose_instance_ec2_reports_terminated_is_ended(self) -> None:
        async with Fleet(REPORT_ONLY).running() as fleet:
            await fleet.running_worker("other")
            worker = await fleet.create("failing")
            await fleet.clock.sleep(5)
            fleet.cloud.terminate(fleet.instance_id(worker))
            await fleet.until(worker, FAILED)
            ended = await fleet.until(worker, TERMINATED, within_seconds=1_000)
            assert "EC2 reports terminated" in ended.status_reason

    async def test_an_instance_that_is_missing_for_a_while_is_not_lost(self) -> None:
        async with Fleet(REPORT_ONLY).running() as fleet:
            await fleet.running_worker("other")
            worker = await fleet.running_worker("hidden")
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
            await fleet.clock.sleep(15 * MINUTE)
            hidden = fleet.cloud.instances.pop(fleet.instance_id(worker))
            await fleet.clock.sleep(8 * MINUTE)
            fleet.cloud.instances[hidden.id] = hidden
            await fleet.clock.sleep(3_600)
            assert (await fleet.get(worker)).status is STOPPED

    async def test_an_instance_that_ec2_terminated_is_launched_again_though_orphans_are_swept_first(
        self,
    ) -> None:
        async with Fleet(REPORT_ONLY).running() as fleet:
            await fleet.running_worker("other")
            await fleet.clock.sleep(15 * MINUTE)
            fleet.cloud.delays = Delays(launch=60, terminate=1)
            worker = await fleet.create("new")
            await fleet.until(worker, PROVISIONING)
            fleet.cloud.terminate(fleet.instance_id(worker), "Server.InternalError")
            await fleet.clock.sleep(1)  # its own next reconcile is a second away
            fleet.leader.reconciler.scope.discovery.trigger()
            worker = await fleet.until(worker, RUNNING)
            assert worker.launch.generation == 2

    async def test_at_most_a_tenth_of_the_fleet_is_ended_in_ten_minutes(self) -> None:
        async with Fleet(REPORT_ONLY).running() as fleet:
            workers = [await fleet.running_worker(f"lab-{n}") for n in range(6)]
            for worker in workers[:4]:
                await fleet.ask(worker, Action.STOP)
                await fleet.until(worker, STOPPED)
                fleet.cloud.forget(fleet.instance_id(worker))
            ended_at: list[float] = []
            for _ in range(4):
                while True:
                    ended = [w for w in workers if (await fleet.get(w)).status is TERMINATED]
                    if len(ended) > len(ended_at):
                        break
                    await fleet.clock.sleep(10)
                assert len(ended) == len(ended_at) + 1
                ended_at.append(fleet.clock.monotonic())
            assert all(b - a >= 590 for a, b in itertools.pairwise(ended_at))

    async def test_an_end_whose_reply_is_lost_is_spent_all_the_same(self) -> None:
        async with Fleet(REPORT_ONLY).running() as fleet:
            workers = [await fleet.running_worker(f"lab-{n}") for n in range(4)]
            for worker in workers[:3]:
                await fleet.ask(worker, Action.STOP)
                await fleet.until(worker, STOPPED)
                fleet.cloud.forget(fleet.instance_id(worker))
            ended_at: list[float] = []

            def lose_the_reply(call: str) -> None:
                if fleet.commits[-1].status is TERMINATED:
                    ended_at.append(fleet.clock.monotonic())
                    raise Unreachable("control plane: no answer")

            fleet.ports[0].after = lose_the_reply
            await fleet.clock.sleep(3_600)
            assert len(ended_at) == 3
            assert all(b - a >= 590 for a, b in itertools.pairwise(ended_at))


class TestMachinesWithoutRecords:
    async def test_they_are_reported_and_left_alone_unless_a_setting_says_otherwise(self) -> None:
        fleet = Fleet(REPORT_ONLY)
        orphan = await leave_behind(fleet)
        async with fleet.running():
            await fleet.running_worker()
            await fleet.clock.sleep(2 * 3_600)
            assert kinds(fleet) == {orphan.id: OrphanKind.NO_RECORD}
            assert is_alive(fleet, orphan)
            assert terminations(fleet) == 0

    async def test_with_the_setting_one_is_terminated_after_two_observations_ten_minutes_apart(self) -> None:
        fleet = Fleet(SWEEPING)
        async with fleet.running():
            await fleet.running_worker()
            await fleet.clock.sleep(20 * MINUTE)
            orphan = await leave_behind(fleet)
            born_at = fleet.clock.monotonic()
            while is_alive(fleet, orphan):
                await fleet.clock.sleep(1)
            assert fleet.clock.monotonic() - born_at >= 10 * MINUTE
            assert fleet.leader.reconciler.scope.discovery.orphans.counts["instances_terminated"] == 1
            await fleet.clock.sleep(10 * MINUTE)
            assert kinds(fleet) == {}

    async def test_an_instance_left_by_an_earlier_launch_is_found(self) -> None:
        fleet = Fleet(SWEEPING)
        async with fleet.running():
            worker = await fleet.running_worker()
            left = fleet.cloud.instances.pop(fleet.instance_id(worker))
            await fleet.until(worker, PENDING)
            worker = await fleet.until(worker, RUNNING)
            mine = worker.instance.id
            fleet.cloud.instances[left.id] = left  # EC2 shows the first launch again
            await fleet.clock.sleep(6 * MINUTE)
            assert kinds(fleet) == {left.id: OrphanKind.SUPERSEDED}
            await fleet.clock.sleep(15 * MINUTE)
            assert left.is_gone
            assert (await fleet.get(worker)).instance.id == mine
            assert (await fleet.get(worker)).status is RUNNING

    async def test_e13_an_instance_with_copied_tags_is_never_destroyed(self) -> None:
        """E13: tags copied to a foreign instance; the conflict is reported."""
        fleet = Fleet(SWEEPING)
        async with fleet.running():
            worker = await fleet.running_worker()
            copied = await leave_behind(fleet, worker.id, token="made-by-somebody-else")
            staging = await leave_behind(fleet, "w-9", environment="staging")
            await fleet.clock.sleep(2 * 3_600)
            assert kinds(fleet) == {copied.id: OrphanKind.CONFLICT, staging.id: OrphanKind.CONFLICT}
            assert terminations(fleet) == 0

    async def test_an_imported_instance_is_never_swept(self) -> None:
        fleet = Fleet(WorkerControllerSettings(orphan_termination_enabled=True))
        instance = await leave_behind(fleet)
        async with fleet.running():
            await fleet.clock.sleep(2 * 3_600)
            [worker] = await fleet.workers.list_all()
            assert (worker.imported, worker.instance.id) == (True, instance.id)
            assert kinds(fleet) == {}
            assert terminations(fleet) == 0


Trouble = Callable[[Fleet], Awaitable[None]]


async def records_are_gone(fleet: Fleet) -> None:
    for worker in await fleet.workers.list_all():
        await fleet.store.delete("worker", worker.id, worker.version)


async def control_plane_is_down(fleet: Fleet) -> None:
    fleet.ports[0].is_reachable = False


def ec2_says(error: LcmError) -> Trouble:
    async def trouble(fleet: Fleet) -> None:
        async def refuse(moment: Moment, operation: str, subject: str) -> None:
            if operation == "list_instances":
                raise error

        fleet.cloud.interfere = refuse

    return trouble


class TestH8NoAuthority:
    """H8: an empty, partial or failed list, or soon after a start: zero destructive calls, report only."""

    @pytest.mark.parametrize(
        "trouble",
        [
            records_are_gone,
            control_plane_is_down,
            ec2_says(Throttled("RequestLimitExceeded")),
            ec2_says(CredentialsRefused("ExpiredToken")),
            ec2_says(Unreachable("EC2 us-east-1: page 2 did not come")),
        ],
        ids=["no records", "no control plane", "throttled", "no credentials", "partial"],
    )
    async def test_without_records_or_lists_nothing_is_destroyed(self, trouble: Trouble) -> None:
        fleet = Fleet(SWEEPING)
        async with fleet.running():
            await fleet.running_worker("first")
            await fleet.running_worker("second")
            await fleet.clock.sleep(20 * MINUTE)
            await leave_behind(fleet)
            await trouble(fleet)
            await fleet.clock.sleep(2 * 3_600)
            assert terminations(fleet) == 0
            assert all(not instance.is_gone for instance in fleet.cloud.instances.values())

    async def test_an_empty_list_ends_no_record(self) -> None:
        async with Fleet(SWEEPING).running() as fleet:
            workers = [await fleet.running_worker(f"lab-{n}") for n in range(3)]
            for worker in workers:
                await fleet.ask(worker, Action.STOP)
                await fleet.until(worker, STOPPED)
            await fleet.clock.sleep(20 * MINUTE)
            # As with the credentials of another account: everything answers, and nothing is there.
            fleet.cloud.instances.clear()
            await fleet.clock.sleep(2 * 3_600)
            assert {(await fleet.get(worker)).status for worker in workers} == {STOPPED}
            orphans = fleet.leader.reconciler.scope.discovery.orphans
            assert "lists no instance" in orphans.dry_run_reasons["us-east-1"]

    async def test_within_ten_minutes_of_a_start_nothing_is_destroyed(self) -> None:
        fleet = Fleet(SWEEPING)
        orphan = await leave_behind(fleet)
        async with fleet.running(controllers=2):
            await fleet.running_worker()
            for _ in range(10):
                await fleet.clock.sleep(9 * MINUTE)
                fleet.leader.election.resign()
                await fleet.clock.sleep(30)
            assert is_alive(fleet, orphan)
            assert terminations(fleet) == 0

    async def test_a_list_that_fails_now_and_then_still_leads_to_an_end(self) -> None:
        fleet = Fleet(SWEEPING)
        orphan = await leave_behind(fleet)
        lists: list[str] = []

        async def every_other_list_fails(moment: Moment, operation: str, subject: str) -> None:
            if operation == "list_instances":
                lists.append(subject)
                if len(lists) % 2:
                    raise Throttled("RequestLimitExceeded")

        async with fleet.running():
            await fleet.running_worker()
            fleet.cloud.interfere = every_other_list_fails
            await fleet.clock.sleep(2 * 3_600)
            fleet.cloud.interfere = None
            await fleet.clock.sleep(30 * MINUTE)
            assert not is_alive(fleet, orphan)


class TestH9SweepRacesLaunch:
    """H9: a launch in progress while the sweep looks; the token counts as owned."""

    @pytest.mark.parametrize("visibility", [0.0, 100.0, 280.0])
    async def test_an_intended_launch_is_never_swept(self, visibility: float) -> None:
        fleet = Fleet(
            WorkerControllerSettings(
                worker_discovery_tag_filter="nothing=here",
                orphan_termination_enabled=True,
                worker_discovery_interval=7,
            )
        )
        fleet.cloud.delays = Delays(visibility=visibility)

        async def lose_replies(moment: Moment, operation: str, subject: str) -> None:
            if (moment, operation) == ("after", "launch_instance"):
                raise Unreachable("EC2: reset")

        fleet.cloud.interfere = lose_replies
        async with fleet.running():
            await fleet.clock.sleep(20 * MINUTE)
            worker = await fleet.create()
            worker = await fleet.until(worker, RUNNING)
            await fleet.clock.sleep(30 * MINUTE)
            assert terminations(fleet) == 0
            assert len(fleet.cloud.instances) == 1
            assert kinds(fleet) == {}

    async def test_a_launch_that_lands_after_its_worker_was_given_up_is_waiting_for_a_person(self) -> None:
        fleet = Fleet(SWEEPING)

        async def never_answer(moment: Moment, operation: str, subject: str) -> None:
            if (moment, operation) == ("before", "launch_instance"):
                raise Unreachable("EC2: no answer")

        fleet.cloud.interfere = never_answer
        async with fleet.running():
            await fleet.clock.sleep(20 * MINUTE)
            worker = await fleet.until(await fleet.create(template="small"), FAILED)
            fleet.cloud.interfere = None
            assert worker.launch.intent is not None
            late = await fleet.cloud.launch_instance(
                worker.launch.intent.spec, worker.launch.intent.client_token
            )
            await fleet.clock.sleep(3_600)
            assert kinds(fleet) == {late.id: OrphanKind.INTENDED}
            assert is_alive(fleet, late)
            await fleet.ask(worker, Action.RETRY)
            worker = await fleet.until(worker, RUNNING)
            assert worker.instance.id == late.id


async def test_who_no_longer_leads_shows_no_orphans() -> None:
    async with Fleet(REPORT_ONLY).running(controllers=2) as fleet:
        await fleet.running_worker()
        await leave_behind(fleet)
        await fleet.clock.sleep(6 * MINUTE)
        leader = fleet.leader
        register_metrics(
            leader.loop.telemetry, leader.service, leader.reconciler, metrics_collected=lambda: 7
        )
        assert "worker_orphan_instances{" in leader.loop.telemetry.render().decode()
        leader.election.resign()
        await fleet.clock.sleep(30)
        assert not leader.election.is_leader
        assert leader.reconciler.scope.discovery.orphans.found == {}
        assert "worker_orphan_instances{" not in leader.loop.telemetry.render().decode()


async def test_an_instance_that_may_not_be_terminated_does_not_protect_the_others() -> None:
    async with Fleet(SWEEPING).running() as fleet:
        await fleet.running_worker()
        protected, other = await leave_behind(fleet, "w-protected"), await leave_behind(fleet, "w-other")

        async def refuse(moment: Moment, operation: str, subject: str) -> None:
            if (operation, subject) == ("terminate_instance", protected.id):
                raise Unreachable("EC2 refused TerminateInstances: OperationNotPermitted: it is protected")

        fleet.cloud.interfere = refuse
        await fleet.clock.sleep(60 * MINUTE)
        assert (is_alive(fleet, protected), is_alive(fleet, other)) == (True, False)
        orphans = fleet.leader.reconciler.scope.discovery.orphans
        assert (orphans.counts["instances_terminated"], orphans.dry_run_reasons) == (1, {})
