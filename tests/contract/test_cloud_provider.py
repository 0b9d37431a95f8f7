"""What every cloud provider promises: the one in memory and EC2's wire protocol alike."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.domain.errors import (
    ImageNotFound,
    InstanceTypeUnfit,
    LaunchLapsed,
    LaunchRefused,
    RegionNotConfigured,
    TokenMismatch,
    WrongInstanceState,
)
from lcm.domain.launch import Ami, InstanceId, LaunchSpec, RootVolume, WorkerId
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Instance
from lcm.simulator.aws.images import SHARED_BY
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from lcm.worker_controller.ports import CloudProvider
from support.memory_cloud import Delays, MemoryCloud
from support.processes import RunningSimulator, eventually, running_simulator

ids = RandomIds()
OWN = ("self",)


def provider_for(settings: Ec2Settings, *regions: str) -> Ec2Provider:
    return Ec2Provider(settings, regions, clock=SystemClock(), chance=random.Random(1))


class Cloud:
    """A provider under test, with the region it can be used in."""

    def __init__(self, provider: CloudProvider, region: RegionConfig) -> None:
        self.provider = provider
        self.region = region

    async def spec(self, worker_id: str, **changes: Any) -> LaunchSpec:
        image = await self.provider.resolve_ami(self.region.region, "CML-*", OWN)
        spec = LaunchSpec(
            region=self.region.region,
            image=image,
            instance_type="t3.small",
            security_group_ids=self.region.security_group_ids,
            subnet_id=self.region.subnet_id,
            key_name=self.region.key_name,
            tags={"cml-managed": "true", "worker_id": worker_id, "Name": worker_id},
        )
        return replace(spec, **changes)

    async def launch(self) -> Instance:
        worker_id = ids.new_id()
        return await self.provider.launch_instance(await self.spec(worker_id), f"token-{worker_id}")

    async def until(self, instance: Instance, state: str) -> Instance:
        async def is_there() -> Instance | None:
            seen = await self.provider.describe_instance(instance.region, instance.id)
            return seen if seen and seen.state == state else None

        found: Instance = await eventually(is_there)
        return found


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator() as running:
        yield running


@pytest.fixture(params=["memory", "ec2"])
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[Cloud]:
    if request.param == "memory":
        config = RegionConfig(region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-1")
        delays = Delays(launch=0.1, start=0.1, stop=0.1, terminate=0.1)
        yield Cloud(MemoryCloud(SystemClock(), delays), config)
        return
    info = request.getfixturevalue("simulator").info
    settings = Ec2Settings(
        endpoint_url=info.aws_endpoint, access_key_id="x", secret_access_key="x", page_size=5
    )
    async with provider_for(settings, info.regions[0].region) as provider:
        yield Cloud(provider, info.regions[0])


async def test_the_newest_image_of_a_name_is_found(cloud: Cloud) -> None:
    image = await cloud.provider.resolve_ami(cloud.region.region, "CML-*", OWN)
    assert image.name == "CML-2.9.1-20260415"


async def test_a_shared_image_is_found_when_its_owner_is_named_and_not_otherwise(cloud: Cloud) -> None:
    with pytest.raises(ImageNotFound):
        await cloud.provider.resolve_ami(cloud.region.region, "CML-*-shared-*", OWN)
    image = await cloud.provider.resolve_ami(cloud.region.region, "CML-*", ("self", SHARED_BY))
    assert image.name == "CML-2.9.1-shared-20260510"


async def test_an_image_says_how_large_the_root_volume_must_be(cloud: Cloud) -> None:
    spec = await cloud.spec(ids.new_id())
    assert (spec.image.root_device, spec.image.disk_gb) == ("/dev/sda1", 16)
    volume = RootVolume(device="/dev/sda1", size_gb=15, is_encrypted=True)
    with pytest.raises(LaunchRefused, match="InvalidBlockDeviceMapping"):
        await cloud.provider.launch_instance(replace(spec, root_volume=volume), ids.new_id())


@pytest.mark.parametrize(
    ("instance_type", "facts"),
    [
        ("t3.micro", (False, False)),
        ("m8i.2xlarge", (False, True)),
        ("c8i.2xlarge", (False, True)),
        ("m5zn.metal", (True, False)),
    ],
)
async def test_a_type_says_whether_it_runs_virtual_machines(
    cloud: Cloud, instance_type: str, facts: tuple[bool, bool]
) -> None:
    assert await cloud.provider.describe_instance_type(cloud.region.region, instance_type) == facts


async def test_an_instance_type_that_does_not_exist_is_a_permanent_error(cloud: Cloud) -> None:
    with pytest.raises(InstanceTypeUnfit, match=r"x9\.huge"):
        await cloud.provider.describe_instance_type(cloud.region.region, "x9.huge")


async def test_nested_virtualization_is_refused_where_the_type_has_none(cloud: Cloud) -> None:
    spec = await cloud.spec(ids.new_id(), instance_type="t3.large", nested_virtualization=True)
    with pytest.raises(LaunchRefused, match="InvalidParameterCombination"):
        await cloud.provider.launch_instance(spec, ids.new_id())


async def test_an_instance_that_is_to_have_no_public_address_has_none(cloud: Cloud) -> None:
    spec = await cloud.spec(ids.new_id(), associate_public_ip=False)
    running = await cloud.until(await cloud.provider.launch_instance(spec, ids.new_id()), "running")
    assert running.private_ip
    assert running.public_ip is None


async def test_an_unknown_image_name_is_a_permanent_error(cloud: Cloud) -> None:
    with pytest.raises(ImageNotFound):
        await cloud.provider.resolve_ami(cloud.region.region, "NOPE-*", OWN)


async def test_a_launch_gives_an_instance_with_its_tags_that_comes_to_run(cloud: Cloud) -> None:
    instance = await cloud.launch()
    assert instance.state == "pending"
    running = await cloud.until(instance, "running")
    assert running.tags["worker_id"] == instance.tags["worker_id"]
    assert running.has_address
    assert running.instance_type == "t3.small"


async def test_tags_are_put_and_taken_off_one_by_one(cloud: Cloud) -> None:
    instance = await cloud.launch()
    await cloud.provider.tag_instance(instance.region, instance.id, {"team": "a", "Name": "other"})
    await cloud.provider.tag_instance(instance.region, instance.id, {"team": "b", "course": "ccna"})
    await cloud.provider.untag_instance(instance.region, instance.id, ["course", "never-there"])
    seen = await cloud.until(instance, "running")
    assert seen.tags == {**instance.tags, "team": "b", "Name": "other"}


async def test_the_same_token_again_gives_the_same_instance(cloud: Cloud) -> None:
    spec = await cloud.spec(ids.new_id())
    first = await cloud.provider.launch_instance(spec, f"same-{spec.tags['worker_id']}")
    second = await cloud.provider.launch_instance(spec, f"same-{spec.tags['worker_id']}")
    assert first.id == second.id
    found = await cloud.provider.find_instances(spec.region, WorkerId(spec.tags["worker_id"]))
    assert len(found) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"instance_type": "t3.large"},
        {"root_volume": RootVolume(device="/dev/sda1", size_gb=20, is_encrypted=True)},
        {"iam_instance_profile": "cml-worker"},
        {"user_data": "#!/bin/sh\n"},
        {"associate_public_ip": True},
        {"metadata_http_tokens": "required"},
        {"capacity_reservation": "cr-0123456789abcdef0"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_the_same_token_with_other_parameters_is_refused(cloud: Cloud, change: dict[str, Any]) -> None:
    worker_id = ids.new_id()
    await cloud.provider.launch_instance(await cloud.spec(worker_id), f"other-{worker_id}")
    with pytest.raises(TokenMismatch):
        await cloud.provider.launch_instance(await cloud.spec(worker_id, **change), f"other-{worker_id}")


async def test_the_same_token_without_nested_virtualization_is_refused(cloud: Cloud) -> None:
    spec = await cloud.spec(ids.new_id(), instance_type="m8i.large", nested_virtualization=True)
    token = ids.new_id()
    await cloud.provider.launch_instance(spec, token)
    with pytest.raises(TokenMismatch):
        await cloud.provider.launch_instance(replace(spec, nested_virtualization=False), token)


async def test_a_token_whose_instance_is_gone_is_void(cloud: Cloud) -> None:
    spec = await cloud.spec(ids.new_id())
    token = f"void-{spec.tags['worker_id']}"
    instance = await cloud.provider.launch_instance(spec, token)
    await cloud.provider.terminate_instance(spec.region, instance.id)
    with pytest.raises(LaunchLapsed):
        await cloud.provider.launch_instance(spec, token)


async def test_stop_and_start_keep_the_instance_and_change_its_public_address(cloud: Cloud) -> None:
    before = await cloud.until(await cloud.launch(), "running")
    await cloud.provider.stop_instance(before.region, before.id)
    stopped = await cloud.until(before, "stopped")
    assert stopped.public_ip is None
    await cloud.provider.start_instance(before.region, before.id)
    after = await cloud.until(before, "running")
    assert after.private_ip == before.private_ip
    assert after.public_ip not in (None, before.public_ip)


async def test_asking_again_for_what_is_on_its_way_succeeds(cloud: Cloud) -> None:
    instance = await cloud.until(await cloud.launch(), "running")
    provider, region = cloud.provider, instance.region
    await provider.start_instance(region, instance.id)
    await provider.stop_instance(region, instance.id)
    await provider.stop_instance(region, instance.id)
    await cloud.until(instance, "stopped")
    await provider.stop_instance(region, instance.id)
    await provider.terminate_instance(region, instance.id)
    await provider.terminate_instance(region, instance.id)
    await cloud.until(instance, "terminated")


Effect = Callable[[CloudProvider, Instance], Awaitable[None]]


@pytest.mark.parametrize(
    "effect",
    [
        lambda provider, instance: provider.start_instance(instance.region, instance.id),
        lambda provider, instance: provider.stop_instance(instance.region, instance.id),
    ],
    ids=["start", "stop"],
)
async def test_a_terminated_instance_cannot_be_moved(cloud: Cloud, effect: Effect) -> None:
    instance = await cloud.launch()
    await cloud.provider.terminate_instance(instance.region, instance.id)
    with pytest.raises(WrongInstanceState):
        await effect(cloud.provider, instance)


async def test_terminating_an_unknown_instance_succeeds(cloud: Cloud) -> None:
    await cloud.provider.terminate_instance(cloud.region.region, InstanceId("i-0123456789abcdef0"))


async def test_an_unknown_instance_is_an_answer_not_an_error(cloud: Cloud) -> None:
    unknown = InstanceId("i-0123456789abcdef0")
    assert await cloud.provider.describe_instance(cloud.region.region, unknown) is None


async def test_a_listing_is_complete_over_several_pages(cloud: Cloud) -> None:
    launched = {(await cloud.launch()).id for _ in range(12)}
    listed = {instance.id for instance in await cloud.provider.list_instances(cloud.region.region)}
    assert launched <= listed


async def test_a_listing_by_other_tags_shows_only_what_has_all_of_them(cloud: Cloud) -> None:
    instance = await cloud.launch()
    wanted = {"cml-managed": "true", "worker_id": instance.tags["worker_id"]}
    assert [i.id for i in await cloud.provider.list_instances(instance.region, wanted)] == [instance.id]
    other = {**wanted, "Name": "somebody else"}
    assert not await cloud.provider.list_instances(instance.region, other)


async def test_an_instance_shows_the_token_of_its_launch(cloud: Cloud) -> None:
    instance = await cloud.launch()
    seen = await cloud.provider.describe_instance(instance.region, instance.id)
    assert seen is not None
    assert seen.client_token == instance.client_token == f"token-{instance.tags['worker_id']}"


async def test_e11_one_unknown_id_does_not_hide_the_others(cloud: Cloud) -> None:
    """E11: a batch that EC2 refuses for one bad id."""
    known = [(await cloud.launch()).id for _ in range(3)]
    asked = [
        known[0],
        InstanceId("i-0123456789abcdef0"),
        known[1],
        InstanceId("i-0fedcba9876543210"),
        known[2],
    ]
    found = await cloud.provider.describe_instances(cloud.region.region, asked)
    assert sorted(instance.id for instance in found) == sorted(known)


async def test_a_batch_of_unknown_ids_is_an_empty_answer(cloud: Cloud) -> None:
    asked = [InstanceId("i-0123456789abcdef0"), InstanceId("i-0fedcba9876543210")]
    assert not await cloud.provider.describe_instances(cloud.region.region, asked)


async def test_images_are_named_and_those_that_are_gone_are_left_out(cloud: Cloud) -> None:
    image = await cloud.provider.resolve_ami(cloud.region.region, "CML-*", OWN)
    found = await cloud.provider.list_images(cloud.region.region, [image.id, "ami-00000000"])
    assert list(found) == [image]


async def test_an_instance_that_a_person_terminated_says_so(cloud: Cloud) -> None:
    """E6: EC2's reason tells what people did from what EC2 gave up."""
    instance = await cloud.launch()
    await cloud.provider.terminate_instance(instance.region, instance.id)
    seen = await cloud.provider.describe_instance(instance.region, instance.id)
    assert seen is not None
    assert not seen.was_terminated_by_ec2
    assert seen.state_reason_code == "Client.UserInitiatedShutdown"


async def test_nothing_is_found_for_a_worker_nobody_launched(cloud: Cloud) -> None:
    assert not await cloud.provider.find_instances(cloud.region.region, WorkerId(ids.new_id()))


async def test_a_region_without_configuration_is_a_permanent_error(simulator: RunningSimulator) -> None:
    settings = Ec2Settings(endpoint_url=simulator.info.aws_endpoint, access_key_id="x", secret_access_key="x")
    async with provider_for(settings, "us-east-1") as provider:
        with pytest.raises(RegionNotConfigured):
            await provider.resolve_ami("mars-north-1", "CML-*", OWN)


async def test_a_launch_with_an_image_that_does_not_exist_is_refused(simulator: RunningSimulator) -> None:
    settings = Ec2Settings(endpoint_url=simulator.info.aws_endpoint, access_key_id="x", secret_access_key="x")
    region = simulator.info.regions[0]
    async with provider_for(settings, region.region) as provider:
        spec = await Cloud(provider, region).spec(ids.new_id(), image=Ami(id="ami-00000000", name="gone"))
        with pytest.raises(LaunchRefused, match="InvalidAMIID"):
            await provider.launch_instance(spec, ids.new_id())
