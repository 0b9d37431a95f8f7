"""Discovery and import on virtual time: found instances become workers, once, and stay untouched."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.adopt_worker import adopt_worker
from lcm.control_plane.commands.import_workers import import_workers
from lcm.control_plane.commands.license_worker import list_debts, request_license
from lcm.control_plane.records import discovery_settings
from lcm.domain.discovery import DiscoverySettings, FoundInstance, ImportTrust, imported_worker
from lcm.domain.errors import Conflict, Fenced, InstanceTaken, Throttled, Unreachable
from lcm.domain.launch import Ami, LaunchSpec, WorkerId
from lcm.domain.lifecycle import FAILED, RUNNING, STOPPED, TERMINATED
from lcm.domain.worker import Action, Instance, Worker
from lcm.rest.fleet import BulkImport
from lcm.worker_controller.settings import WorkerControllerSettings
from support.fleet import REGION, DirectControlPlane, Fleet
from support.memory_cloud import Moment
from unit.worker_controller.test_ec2_faults import EUROPE

CML = {"cml-managed": "true", "Name": "Old Lab"}


async def an_instance(
    fleet: Fleet, tags: Mapping[str, str] = CML, *, region: str = "us-east-1", image: str = "CML-2.9.1"
) -> Instance:
    """An instance that LCM did not launch."""
    spec = LaunchSpec(
        region=region,
        image=Ami(id=f"ami-{image}", name=image),
        instance_type="m5zn.metal",
        security_group_ids=("sg-7",),
        subnet_id="subnet-7",
        key_name=None,
        tags=dict(tags),
    )
    if spec.image.id not in {known.id for known in fleet.cloud.images}:
        fleet.cloud.images += (spec.image,)
    return await fleet.cloud.launch_instance(spec, fleet.ids.new_id())


async def workers(fleet: Fleet) -> list[Worker]:
    return await fleet.workers.list_all()


async def test_an_instance_with_the_tag_becomes_a_worker_with_its_cml_version() -> None:
    fleet = Fleet()
    instance = await an_instance(fleet)
    await fleet.clock.sleep(300)
    async with fleet.running():
        await fleet.clock.sleep(11)
        [worker] = await workers(fleet)
        assert (worker.status, worker.imported, worker.instance.id) == (RUNNING, True, instance.id)
        assert (worker.name, worker.template_name, worker.instance.ami_name) == (
            "old-lab",
            "metal",
            "CML-2.9.1",
        )
        assert (worker.cml.version, worker.cml.is_ready) == ("2.9.1+build.7", True)
        assert worker.cml.certificate_sha256 == fleet.cml.certificate


async def test_a_cml_that_does_not_answer_does_not_block_the_import() -> None:
    fleet = Fleet()

    async def silence(host: str, pinned_sha256: str | None) -> None:
        raise Unreachable(f"CML at {host}: no answer")

    fleet.cml.get_system_information = silence  # type: ignore[method-assign,assignment]
    await an_instance(fleet)
    await fleet.clock.sleep(60)
    async with fleet.running():
        await fleet.clock.sleep(11)
        [worker] = await workers(fleet)
        assert (worker.status, worker.cml.version, worker.cml.is_ready) == (RUNNING, None, False)


async def test_an_instance_is_found_within_the_interval_and_imported_once() -> None:
    async with Fleet().running() as fleet:
        await fleet.clock.sleep(20)
        await an_instance(fleet)
        await fleet.clock.sleep(280)
        assert await workers(fleet) == []
        await fleet.clock.sleep(30)
        assert len(await workers(fleet)) == 1
        await fleet.clock.sleep(3_600)
        assert len(await workers(fleet)) == 1


async def test_terminated_workers_are_read_only_for_an_instance_that_may_have_been_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[bool] = []
    list_resources = DirectControlPlane.list_resources

    async def counted(port: DirectControlPlane, *, include_terminated: bool = False) -> Sequence[Worker]:
        reads.append(include_terminated)
        return await list_resources(port, include_terminated=include_terminated)

    monkeypatch.setattr(DirectControlPlane, "list_resources", counted)
    async with Fleet().running() as fleet:
        await an_instance(fleet)
        await fleet.clock.sleep(310)
        [worker] = await workers(fleet)
        reads.clear()
        await fleet.clock.sleep(600)
        assert set(reads) == {False}
        await fleet.workers.change(worker.id, lambda known: replace(known, status=TERMINATED))
        await fleet.clock.sleep(600)
        assert True in reads
        assert len(await workers(fleet)) == 1, "it is not imported again"


async def test_workers_that_lcm_launches_are_never_imported() -> None:
    async with Fleet().running() as fleet:
        await fleet.running_worker("first")
        await fleet.create("second")
        await fleet.clock.sleep(1_000)
        assert sorted(worker.name for worker in await workers(fleet)) == ["first", "second"]
        assert not any(worker.imported for worker in await workers(fleet))


async def test_an_imported_worker_is_left_as_it_is() -> None:
    fleet = Fleet()
    running, stopped = await an_instance(fleet), await an_instance(fleet)
    await fleet.clock.sleep(60)
    fleet.cloud.stop(stopped.id)
    await fleet.clock.sleep(60)
    calls = len(fleet.effects())
    async with fleet.running():
        await fleet.clock.sleep(3_000)
        states = {worker.instance.id: worker.status for worker in await workers(fleet)}
        assert states == {running.id: RUNNING, stopped.id: STOPPED}
        assert len(fleet.effects()) == calls


async def test_people_can_stop_start_and_delete_an_imported_worker() -> None:
    fleet = Fleet()
    await an_instance(fleet)
    async with fleet.running():
        await fleet.clock.sleep(30)
        [worker] = await workers(fleet)
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
        await fleet.ask(worker, Action.START)
        await fleet.until(worker, RUNNING)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)


@pytest.mark.parametrize("status", [RUNNING, STOPPED])
async def test_an_imported_worker_whose_instance_is_gone_is_terminated_and_never_relaunched(
    status: str,
) -> None:
    fleet = Fleet()
    instance = await an_instance(fleet)
    await fleet.clock.sleep(60)
    async with fleet.running():
        await fleet.clock.sleep(30)
        [worker] = await workers(fleet)
        if status == STOPPED:
            await fleet.ask(worker, Action.STOP)
            await fleet.until(worker, STOPPED)
        launches = fleet.effects().count("launch_instance")
        fleet.cloud.forget(instance.id)
        if status == STOPPED:
            await fleet.ask(worker, Action.START)
        await fleet.until(worker, TERMINATED)
        await fleet.clock.sleep(1_800)
        assert fleet.effects().count("launch_instance") == launches
        assert not fleet.cloud.instances


async def test_a_failed_imported_worker_that_is_retried_launches_nothing() -> None:
    fleet = Fleet()
    instance = await an_instance(fleet)
    async with fleet.running():
        await fleet.clock.sleep(15)
        [worker] = await workers(fleet)
        fleet.cloud.terminate(instance.id)
        worker = await fleet.until(worker, FAILED)
        calls = len(fleet.effects())
        await fleet.ask(worker, Action.RETRY)
        await fleet.until(worker, TERMINATED)
        assert len(fleet.effects()) == calls


async def test_tag_and_image_must_both_match() -> None:
    """D-13."""
    settings = WorkerControllerSettings(
        worker_discovery_tag_filter="team=labs", worker_discovery_ami_filter="CML-2.9*"
    )
    fleet = Fleet(settings)
    wanted = await an_instance(fleet, {"team": "labs"}, image="CML-2.9.1")
    await an_instance(fleet, {"team": "labs"}, image="CML-2.8.0")
    await an_instance(fleet, {"team": "other"}, image="CML-2.9.1")
    await an_instance(fleet, CML, image="CML-2.9.1")
    async with fleet.running():
        await fleet.clock.sleep(60)
        assert [worker.instance.id for worker in await workers(fleet)] == [wanted.id]


async def test_what_people_set_counts_after_at_most_five_minutes() -> None:
    async with Fleet(None, REGION, EUROPE).running() as fleet:
        await fleet.clock.sleep(20)
        instance = await an_instance(fleet, {"team": "labs"}, region="eu-west-1")
        wanted = DiscoverySettings(regions=("eu-west-1",), tag_filter={"team": "labs"})
        await discovery_settings.change(fleet.store, lambda _: wanted)
        await fleet.clock.sleep(300)
        [worker] = await workers(fleet)
        assert (worker.aws_region, worker.instance.id) == ("eu-west-1", instance.id)


@pytest.mark.parametrize(
    "settings",
    [
        WorkerControllerSettings(worker_discovery_enabled=False),
        WorkerControllerSettings(auto_import_enabled=False),
    ],
)
async def test_switched_off_nothing_is_imported(settings: WorkerControllerSettings) -> None:
    fleet = Fleet(settings)
    await an_instance(fleet)
    async with fleet.running():
        await fleet.clock.sleep(1_000)
        assert await workers(fleet) == []


async def test_a_region_that_cannot_be_listed_is_reported_and_tried_again() -> None:
    fleet = Fleet(WorkerControllerSettings(worker_discovery_regions="us-east-1, eu-west-1"), REGION, EUROPE)
    await an_instance(fleet, region="eu-west-1")
    broken = True

    async def fail(moment: Moment, operation: str, subject: str) -> None:
        if (operation, subject) == ("list_instances", "us-east-1") and broken:
            raise Throttled("RequestLimitExceeded")

    fleet.cloud.interfere = fail
    await an_instance(fleet)
    async with fleet.running():
        await fleet.clock.sleep(60)
        assert [worker.aws_region for worker in await workers(fleet)] == ["eu-west-1"]
        discovery = fleet.leader.reconciler.scope.discovery
        assert "RequestLimitExceeded" in discovery.region_results["us-east-1"].error
        assert discovery.counts["us-east-1", "failures"] == 1
        broken = False
        await fleet.clock.sleep(300)
        assert len(await workers(fleet)) == 2


async def test_only_the_leader_scans() -> None:
    fleet = Fleet()
    await an_instance(fleet)
    async with fleet.running(controllers=3):
        await fleet.clock.sleep(1_000)
        assert len(await workers(fleet)) == 1
        discoveries = [controller.reconciler.scope.discovery for controller in fleet.controllers]
        assert sum(bool(discovery.region_results) for discovery in discoveries) == 1


class TestH7TheSameInstanceTwice:
    """H7: the same instance imported twice; the second gets a conflict of its own."""

    async def test_the_second_import_is_a_conflict_of_that_instance_alone(self) -> None:
        async with Fleet().running() as fleet:
            port = fleet.ports[0]
            found = FoundInstance(instance=await an_instance(fleet))
            other = FoundInstance(instance=await an_instance(fleet))
            first = await port.bulk_import([found])
            second = await port.bulk_import([found, other])
            assert [item.status for item in first.items] == [201]
            assert [item.status for item in second.items] == [409, 201]
            names = sorted(worker.name for worker in await workers(fleet))
            assert len(names) == 2
            assert names[0] == "old-lab"

    async def test_of_two_imports_at_once_one_wins(self) -> None:
        async with Fleet().running() as fleet:
            found = FoundInstance(instance=await an_instance(fleet))
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(fleet.ports[0].bulk_import([found])) for _ in range(5)]
            statuses = sorted(task.result().items[0].status for task in asked)
            assert statuses == [201, 409, 409, 409, 409]
            assert len(await workers(fleet)) == 1

    async def test_an_import_that_takes_effect_late_does_not_bring_a_released_worker_back(self) -> None:
        async with Fleet().running() as fleet:
            instance = await an_instance(fleet)
            await fleet.clock.sleep(310)
            [worker] = await workers(fleet)
            await fleet.ask(worker, Action.DELETE)
            await fleet.until(worker, TERMINATED)
            late = imported_worker(
                FoundInstance(instance=instance),
                worker_id=WorkerId("late"),
                taken_names=(),
                templates=(),
                by="controller",
                now=worker.created_at,
            )
            with pytest.raises(InstanceTaken):
                await fleet.workers.add(late)

    async def test_a_launched_instance_cannot_be_imported_even_without_its_tags(self) -> None:
        async with Fleet().running() as fleet:
            worker = await fleet.running_worker()
            fleet.cloud.retag(fleet.instance_id(worker), {"cml-managed": "true"})
            await fleet.clock.sleep(700)
            assert [known.id for known in await workers(fleet)] == [worker.id]

    async def test_an_old_leader_imports_nothing(self) -> None:
        async with Fleet().running() as fleet:
            untagged = await an_instance(fleet, {"Name": "found-by-hand"})
            bulk = BulkImport(instances=[FoundInstance(instance=untagged)])
            old = fleet.ports[0]._fence()
            fleet.leader.election.resign()
            await fleet.clock.sleep(30)
            with pytest.raises(Fenced):
                await import_workers(fleet.plane.records, fleet.plane.policies, bulk, by="old", fence=old)


def test_the_settings_have_the_contracts_names_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    contract: dict[str, tuple[str, object, str, object]] = {
        "WORKER_DISCOVERY_ENABLED": ("worker_discovery_enabled", True, "false", False),
        "AUTO_IMPORT_ENABLED": ("auto_import_enabled", True, "false", False),
        "WORKER_DISCOVERY_INTERVAL": ("worker_discovery_interval", 300, "60", 60),
        "WORKER_DISCOVERY_TAG_FILTER": ("worker_discovery_tag_filter", None, "a=b", "a=b"),
        "WORKER_DISCOVERY_AMI_FILTER": ("worker_discovery_ami_filter", "", "CML-*", "CML-*"),
        "WORKER_DISCOVERY_REGIONS": ("worker_discovery_regions", "", "a, b", "a, b"),
        "AWS_REGION": ("aws_region", "us-east-1", "eu-west-1", "eu-west-1"),
        "CLEANUP_ENABLED": ("cleanup_enabled", True, "false", False),
        "CLEANUP_INTERVAL_SECONDS": ("cleanup_interval_seconds", 3600, "60", 60),
        "CLEANUP_RETENTION_DAYS": ("cleanup_retention_days", 30, "7", 7),
        "ORPHAN_TERMINATION_ENABLED": ("orphan_termination_enabled", False, "true", True),
    }
    for variable, (name, default, text, value) in contract.items():
        monkeypatch.delenv(variable, raising=False)
        assert getattr(WorkerControllerSettings(), name) == default, variable
        monkeypatch.setenv(variable, text)
        assert getattr(WorkerControllerSettings(), name) == value, variable
    assert WorkerControllerSettings().discovery_regions == ("a", "b")
    assert not WorkerControllerSettings().is_discovery_enabled


async def test_an_instance_that_lcm_did_not_launch_is_not_logged_in_to_until_it_is_adopted() -> None:
    """H2. A monitor is what logs in."""
    fleet = Fleet()
    await an_instance(fleet)
    async with fleet.running():
        await fleet.clock.sleep(600)
        [worker] = await workers(fleet)
        assert (worker.cml.is_ready, worker.cml.certificate_sha256) == (True, fleet.cml.certificate)
        assert fleet.monitors.asked == []
        await adopt_worker(
            fleet.plane.records, fleet.plane.policies, worker.id, fleet.cml.certificate, by="ann"
        )
        await fleet.clock.sleep(5)
        assert {target.worker_id for target in fleet.monitors.asked} == {worker.id}


async def test_an_instance_on_the_allow_list_is_logged_in_to_and_another_one_is_not() -> None:
    settings = WorkerControllerSettings(
        auto_import_trust=ImportTrust.TAG, auto_import_allow="ami=ami-CML-2.9.1"
    )
    fleet = Fleet(settings)
    ours = await an_instance(fleet)
    await an_instance(fleet, image="CML-backdoor")
    async with fleet.running():
        await fleet.clock.sleep(600)
        assert len(await workers(fleet)) == 2
        assert {target.server.instance_id for target in fleet.monitors.asked} == {ours.id}


async def test_a_worker_that_is_deleted_without_being_adopted_owes_its_license_at_once() -> None:
    """It may have one, and cannot be asked."""
    fleet = Fleet()
    await an_instance(fleet)
    async with fleet.running():
        await fleet.clock.sleep(60)
        [worker] = await workers(fleet)
        with pytest.raises(Conflict, match="adopt it first"):
            await request_license(fleet.plane.records, worker.id, "a-token")
        await fleet.ask(worker, Action.DELETE)
        await fleet.clock.sleep(60)
        [gone] = await workers(fleet)
        assert gone.status is TERMINATED
        assert [debt.worker_id for debt in await list_debts(fleet.plane.records)] == [worker.id]
        assert fleet.licensing.calls == []


def test_nothing_is_trusted_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WorkerControllerSettings().auto_import_trust is ImportTrust.ADOPT
    monkeypatch.setenv("AUTO_IMPORT_TRUST", "tag")
    monkeypatch.setenv("AUTO_IMPORT_ALLOW", "vpc=vpc-1")
    assert WorkerControllerSettings().allow_list.wanted == {"vpc": {"vpc-1"}}


@pytest.mark.parametrize(
    ("trust", "allowed", "advice"),
    [
        (ImportTrust.TAG, "", "AUTO_IMPORT_ALLOW"),
        (ImportTrust.ADOPT, "vpc=vpc-1", "AUTO_IMPORT_TRUST=tag"),
        (ImportTrust.TAG, "tag=cml", "owner, vpc, subnet, ami"),
    ],
)
def test_a_tag_alone_cannot_be_trusted(trust: ImportTrust, allowed: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        WorkerControllerSettings(auto_import_trust=trust, auto_import_allow=allowed)


def test_a_tag_filter_that_cannot_be_read_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="key=value"):
        WorkerControllerSettings(worker_discovery_tag_filter="cml-managed")


async def test_a_scan_triggered_while_the_settings_are_read_uses_the_newest() -> None:
    async with Fleet(None, REGION, EUROPE).running() as fleet:
        port, is_reading = fleet.ports[0], asyncio.Event()
        read = port.get_discovery_settings

        async def slowly() -> DiscoverySettings:
            settings = await read()
            is_reading.set()
            await fleet.clock.sleep(1)
            return settings

        port.get_discovery_settings = slowly  # type: ignore[method-assign]
        await is_reading.wait()
        wanted = DiscoverySettings(regions=(EUROPE.region,))
        await discovery_settings.change(fleet.store, lambda _: wanted)
        fleet.leader.reconciler.scope.discovery.trigger()
        await fleet.clock.sleep(10)
        assert EUROPE.region in fleet.leader.reconciler.scope.discovery.region_results
