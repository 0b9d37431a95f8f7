"""The fault catalogue's EC2 rows over EC2's own wire protocol: what the adapter makes of each."""

import asyncio
import random
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.rate_limit import Rate
from lcm.domain.errors import (
    CapacityShortage,
    CredentialsRefused,
    LaunchRefused,
    LcmError,
    QuotaExceeded,
    Throttled,
    TokenMismatch,
    Unreachable,
    WrongInstanceState,
)
from lcm.domain.launch import InstanceId, LaunchSpec, RootVolume, WorkerId
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from support.processes import RunningSimulator, eventually, running_simulator

ids = RandomIds()
OWN = ("self",)


class Wire:
    """A provider on the simulator's wire, and what the simulator saw of it."""

    def __init__(
        self, provider: Ec2Provider, simulator: RunningSimulator, http: aiohttp.ClientSession
    ) -> None:
        self.provider = provider
        self.region = simulator.info.regions[0]
        self.name = self.region.region
        self._url = f"{simulator.info.aws_endpoint}/_lcm"
        self._http = http

    async def disturb(self, operation: str, kind: str = "error", **fault: Any) -> None:
        await self._http.post(f"{self._url}/faults", json={"operation": operation, "kind": kind, **fault})

    async def calls(self) -> list[str]:
        async with self._http.get(f"{self._url}/calls") as response:
            return [call["operation"] for call in await response.json()]

    async def forget(self) -> None:
        await self._http.delete(f"{self._url}/faults")
        await self._http.delete(f"{self._url}/calls")

    async def spec(self, **changes: Any) -> LaunchSpec:
        spec = LaunchSpec(
            region=self.name,
            image=await self.provider.resolve_ami(self.name, "CML-*", OWN),
            instance_type="t3.small",
            security_group_ids=self.region.security_group_ids,
            subnet_id=self.region.subnet_id,
            key_name=self.region.key_name,
            tags={"cml-managed": "true", "worker_id": ids.new_id()},
        )
        return replace(spec, **changes)

    async def seen(self, instance_id: InstanceId) -> dict[str, Any]:
        """The instance as EC2 describes it, with all of its parameters."""
        answer = await self.provider._clients[self.name].describe_instances(InstanceIds=[instance_id])
        instance: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return instance

    async def volumes(self, instance_id: InstanceId) -> list[dict[str, Any]]:
        answer = await self.provider._clients[self.name].describe_volumes(
            Filters=[{"Name": "attachment.instance-id", "Values": [instance_id]}]
        )
        volumes: list[dict[str, Any]] = answer["Volumes"]
        return volumes

    async def launch(self) -> InstanceId:
        return (await self.provider.launch_instance(await self.spec(), ids.new_id())).id


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator() as running:
        yield running


@asynccontextmanager
async def opened(simulator: RunningSimulator, regions: int = 1, **settings: Any) -> AsyncIterator[Wire]:
    reached: dict[str, Any] = {
        "endpoint_url": simulator.info.aws_endpoint,
        "access_key_id": "x",
        "secret_access_key": "x",
    }
    names = [region.region for region in simulator.info.regions[:regions]]
    async with (
        aiohttp.ClientSession(raise_for_status=True) as http,
        Ec2Provider(
            Ec2Settings(**reached, **settings), names, clock=SystemClock(), chance=random.Random(1)
        ) as provider,
    ):
        wire = Wire(provider, simulator, http)
        await wire.forget()
        yield wire
        await wire.forget()


@pytest.fixture
async def wire(simulator: RunningSimulator) -> AsyncIterator[Wire]:
    async with opened(simulator) as wire:
        yield wire


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        pytest.param("RequestLimitExceeded", 503, Throttled, id="E1-throttled"),
        pytest.param("Unavailable", 503, Throttled, id="E1-unavailable"),
        pytest.param("SomethingNew", 503, Throttled, id="E1-any-503"),
        pytest.param("InsufficientInstanceCapacity", 500, CapacityShortage, id="E2-capacity"),
        pytest.param("InsufficientFreeAddressesInSubnet", 400, CapacityShortage, id="E2-addresses"),
        pytest.param("ReservationCapacityExceeded", 400, CapacityShortage, id="E2-reservation"),
        pytest.param("InstanceLimitExceeded", 400, QuotaExceeded, id="E3-instances"),
        pytest.param("VcpuLimitExceeded", 400, QuotaExceeded, id="E3-vcpus"),
        pytest.param("VolumeLimitExceeded", 400, QuotaExceeded, id="E3-volumes"),
        pytest.param("UnauthorizedOperation", 403, CredentialsRefused, id="E4-unauthorized"),
        pytest.param("ExpiredToken", 400, CredentialsRefused, id="E4-expired"),
        pytest.param("RequestExpired", 400, CredentialsRefused, id="E4-clock"),
        pytest.param("IdempotentParameterMismatch", 400, TokenMismatch, id="E5-mismatch"),
        pytest.param("IncorrectInstanceState", 400, WrongInstanceState, id="E8-state"),
        pytest.param("InvalidSubnetID.NotFound", 400, LaunchRefused, id="refused"),
        pytest.param("SomethingNew", 400, LaunchRefused, id="unknown-refusal"),
        pytest.param("InternalError", 500, Unreachable, id="internal-error"),
    ],
)
async def test_a_refused_launch_arrives_as_the_error_it_stands_for(
    wire: Wire, code: str, status: int, expected: type[LcmError]
) -> None:
    spec = await wire.spec()
    await wire.disturb("RunInstances", code=code, status=status)
    with pytest.raises(expected, match=code) as refusal:
        await wire.provider.launch_instance(spec, ids.new_id())
    assert type(refusal.value) is expected
    assert (await wire.calls()).count("RunInstances") == 1  # and nobody repeated it behind our back


ROOT = RootVolume(device="/dev/sda1", size_gb=64, is_encrypted=True)


async def test_the_root_volume_is_as_large_as_it_was_requested_encrypted_and_goes_with_the_instance(
    wire: Wire,
) -> None:
    launched = await wire.provider.launch_instance(await wire.spec(root_volume=ROOT), ids.new_id())
    [volume] = await wire.volumes(launched.id)
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (64, "gp3", True)
    [device] = (await wire.seen(launched.id))["BlockDeviceMappings"]
    assert (device["DeviceName"], device["Ebs"]["DeleteOnTermination"]) == ("/dev/sda1", True)


async def test_a_launch_that_says_nothing_of_the_disk_gets_the_images(wire: Wire) -> None:
    [volume] = await wire.volumes(await wire.launch())
    assert volume["Size"] == 16


async def test_every_parameter_of_a_launch_reaches_ec2_and_a_repetition_gives_the_same_instance(
    wire: Wire,
) -> None:
    spec = await wire.spec(
        instance_type="m8i.xlarge",
        root_volume=ROOT,
        iam_instance_profile="cml-worker",
        user_data="#!/bin/sh\necho ready\n",
        associate_public_ip=False,
        metadata_http_tokens="required",
        capacity_reservation="cr-0123456789abcdef0",
        nested_virtualization=True,
    )
    token = ids.new_id()
    first = await wire.provider.launch_instance(spec, token)
    again = await wire.provider.launch_instance(spec, token)
    assert again.id == first.id
    seen = await wire.seen(first.id)
    assert seen["IamInstanceProfile"]["Arn"].endswith(":instance-profile/cml-worker")
    assert seen["MetadataOptions"]["HttpTokens"] == "required"
    assert seen["CpuOptions"]["NestedVirtualization"] == "enabled"
    assert [group["GroupId"] for group in seen["SecurityGroups"]] == list(wire.region.security_group_ids)
    assert seen["SubnetId"] == wire.region.subnet_id
    answer = await wire.provider._clients[wire.name].describe_instance_attribute(
        InstanceId=first.id, Attribute="userData"
    )
    assert b64decode(answer["UserData"]["Value"]).decode() == spec.user_data


async def test_an_unknown_capacity_reservation_is_refused_for_good(wire: Wire) -> None:
    spec = await wire.spec(capacity_reservation="cr-0fedcba9876543210")
    with pytest.raises(LaunchRefused, match="InvalidCapacityReservationId"):
        await wire.provider.launch_instance(spec, ids.new_id())


@pytest.mark.parametrize("operation", ["start", "stop"])
async def test_e2_e8_a_refused_move_arrives_as_the_error_it_stands_for(wire: Wire, operation: str) -> None:
    instance_id = await wire.launch()
    move = getattr(wire.provider, f"{operation}_instance")
    for code, expected in (
        ("InsufficientInstanceCapacity", CapacityShortage),
        ("IncorrectInstanceState", WrongInstanceState),
    ):
        await wire.disturb(f"{operation.title()}Instances", code=code, status=400)
        with pytest.raises(expected):
            await move(wire.name, instance_id)


async def test_e1_after_a_refusal_the_next_call_of_that_api_pauses_and_others_do_not(wire: Wire) -> None:
    await wire.disturb("DescribeInstances", code="RequestLimitExceeded", status=503)
    with pytest.raises(Throttled):
        await wire.provider.list_instances(wire.name)
    async with asyncio.TaskGroup() as tasks:
        paused = tasks.create_task(wire.provider.list_instances(wire.name))
        await wire.provider.resolve_ami(wire.name, "CML-*", OWN)
        assert not paused.done()
    assert (await wire.calls())[-1] == "DescribeInstances"


async def test_e1_questions_that_wait_for_their_turn_become_one(simulator: RunningSimulator) -> None:
    """E1: reads batched."""
    limits = {"DescribeInstances": Rate(per_second=1, burst=1)}
    async with opened(simulator, limits=limits) as wire:
        known = [await wire.launch() for _ in range(12)]
        await wire.forget()
        async with asyncio.TaskGroup() as tasks:
            looking = [tasks.create_task(wire.provider.describe_instance(wire.name, i)) for i in known]
        found = [look.result() for look in looking]
        assert [instance.id for instance in found if instance] == known
        assert (await wire.calls()).count("DescribeInstances") <= 2


async def test_e11_a_batch_that_is_refused_without_naming_the_bad_id_is_split(wire: Wire) -> None:
    """E11: split batch; good ids proceed."""
    known = [await wire.launch() for _ in range(5)]
    await wire.disturb(
        "DescribeInstances", code="InvalidInstanceID.NotFound", status=400, count=None, instance_id=known[3]
    )
    found = await wire.provider.describe_instances(wire.name, known)
    assert {instance.id for instance in found} == set(known) - {known[3]}


async def test_a3_a_launch_whose_reply_was_lost_is_found_under_its_token(wire: Wire) -> None:
    """A3: RunInstances applied, reply lost."""
    spec, token = await wire.spec(), ids.new_id()
    await wire.disturb("RunInstances", "lose_reply")
    with pytest.raises(Unreachable):
        await wire.provider.launch_instance(spec, token)
    again = await wire.provider.launch_instance(spec, token)
    found = await wire.provider.list_instances(wire.name, spec.tags)
    assert [instance.id for instance in found] == [again.id]
    assert again.client_token == token


async def test_a4_a_launch_that_lands_late_is_the_one_that_was_asked_for_again(
    simulator: RunningSimulator,
) -> None:
    """A4: the effect comes after its caller gave up."""
    async with opened(simulator) as wire, opened(simulator, read_timeout_seconds=0.3) as hasty:
        spec, token = await wire.spec(), ids.new_id()
        await wire.disturb("RunInstances", "delay", seconds=1)
        while "RunInstances" not in await wire.calls():  # a busy host may not even send it in time
            with pytest.raises(Unreachable):
                await hasty.provider.launch_instance(spec, token)
        again = await wire.provider.launch_instance(spec, token)

        async def has_landed() -> bool:
            return (await wire.calls()).count("RunInstances") >= 2

        await eventually(has_landed)
        found = await wire.provider.list_instances(wire.name, spec.tags)
        assert [instance.id for instance in found] == [again.id]


async def test_b1_a_new_instance_that_is_not_shown_yet_is_an_answer_and_not_an_error(wire: Wire) -> None:
    """B1: describe does not show a new instance."""
    new = await wire.launch()
    await wire.disturb(
        "DescribeInstances", code="InvalidInstanceID.NotFound", status=400, instance_id=new, count=2
    )
    assert await wire.provider.describe_instance(wire.name, new) is None
    assert await wire.provider.describe_instances(wire.name, [new]) == []
    assert (await wire.provider.describe_instance(wire.name, new)) is not None


async def test_b2_a_list_of_which_a_page_is_missing_is_no_list(simulator: RunningSimulator) -> None:
    """B2: a partial list never looks like a whole one."""
    async with opened(simulator, page_size=5) as wire:
        for _ in range(6):
            await wire.launch()
        await wire.disturb("DescribeInstances", "delay", seconds=0)
        await wire.disturb("DescribeInstances", code="InternalError", status=500)
        with pytest.raises(LcmError):
            await wire.provider.list_instances(wire.name)
        assert len(await wire.provider.list_instances(wire.name)) >= 6


async def test_e13_whose_a_machine_is_shows_in_its_token_and_not_in_its_tags(wire: Wire) -> None:
    """E13: tags copied to a foreign instance."""
    ours, token = await wire.spec(), ids.new_id()
    launched = await wire.provider.launch_instance(ours, token)
    foreign = await wire.provider.launch_instance(ours, ids.new_id())
    found = await wire.provider.find_instances(wire.name, WorkerId(ours.tags["worker_id"]))
    assert {instance.id for instance in found} == {launched.id, foreign.id}
    assert [instance.id for instance in found if instance.client_token == token] == [launched.id]


@pytest.mark.parametrize("operation", ["stop", "terminate"])
async def test_a5_a_move_whose_reply_was_lost_can_be_repeated(wire: Wire, operation: str) -> None:
    """A5: stop or terminate applied, reply lost."""
    instance_id = await wire.launch()

    async def runs() -> bool:
        seen = await wire.provider.describe_instance(wire.name, instance_id)
        return seen is not None and seen.state == "running"

    await eventually(runs)
    move = getattr(wire.provider, f"{operation}_instance")
    await wire.disturb(f"{operation.title()}Instances", "lose_reply")
    with pytest.raises(Unreachable):
        await move(wire.name, instance_id)
    await move(wire.name, instance_id)


async def test_e7_a_machine_that_is_on_its_way_is_shown_as_such_and_nothing_is_forced() -> None:
    """E7: stuck stopping, for as long as EC2 says so."""
    with running_simulator("--speed", "1") as slow:
        async with opened(slow) as wire:
            instance_id = await wire.launch()

            async def state() -> str | None:
                seen = await wire.provider.describe_instance(wire.name, instance_id)
                return seen.state if seen is not None else None

            async def runs() -> bool:
                return await state() == "running"

            await eventually(runs)
            await wire.provider.stop_instance(wire.name, instance_id)
            assert await state() == "stopping"
            with pytest.raises(WrongInstanceState):
                await wire.provider.start_instance(wire.name, instance_id)
            await wire.provider.stop_instance(wire.name, instance_id)
            assert await state() == "stopping"


async def test_e14_a_call_that_hangs_is_given_up_and_not_repeated(simulator: RunningSimulator) -> None:
    """E14: own timeouts."""
    async with opened(simulator, read_timeout_seconds=0.2) as wire:
        await wire.disturb("DescribeInstances", "hang", seconds=30)
        with pytest.raises(Unreachable):
            await wire.provider.list_instances(wire.name)
        assert (await wire.calls()).count("DescribeInstances") == 1


def test_e14_the_timeouts_are_three_and_ten_seconds() -> None:
    settings = Ec2Settings()
    assert (settings.connect_timeout_seconds, settings.read_timeout_seconds) == (3.0, 10.0)


async def test_e10_an_id_that_ec2_does_not_know_is_an_answer(wire: Wire) -> None:
    """E10: NotFound from describe and terminate."""
    unknown = InstanceId("i-0123456789abcdef0")
    assert await wire.provider.describe_instance(wire.name, unknown) is None
    await wire.provider.terminate_instance(wire.name, unknown)


async def test_credentials_of_another_account_reach_nothing(simulator: RunningSimulator) -> None:
    async with opened(simulator, account_id="123456789012") as wire:  # moto's
        await wire.provider.list_instances(wire.region.region)
        await wire.launch()
    async with opened(simulator, account_id="999988887777") as wire:
        for attempt in (wire.provider.list_instances(wire.region.region), wire.launch()):
            with pytest.raises(CredentialsRefused, match="123456789012"):
                await attempt
        assert await wire.calls() == []


async def test_two_regions_are_used_at_once(simulator: RunningSimulator) -> None:
    other = simulator.info.regions[1]
    async with opened(simulator, regions=2) as wire:
        here = await wire.launch()
        spec = LaunchSpec(
            region=other.region,
            image=await wire.provider.resolve_ami(other.region, "CML-*", OWN),
            instance_type="t3.small",
            security_group_ids=other.security_group_ids,
            subnet_id=other.subnet_id,
            key_name=other.key_name,
            tags={"cml-managed": "true"},
        )
        there = await wire.provider.launch_instance(spec, ids.new_id())
        assert here in {i.id for i in await wire.provider.list_instances(wire.name)}
        assert there.id in {i.id for i in await wire.provider.list_instances(other.region)}
        assert await wire.provider.describe_instance(wire.name, there.id) is None


async def test_a_leader_that_lost_its_lease_while_waiting_changes_nothing(
    simulator: RunningSimulator,
) -> None:
    """I8: the permit may come after the deadline."""

    class NoLongerLeading(Exception):
        pass

    def refuse() -> None:
        raise NoLongerLeading

    async with opened(simulator) as wire:
        instance_id = await wire.launch()
        wire.provider._before_effect = refuse
        await wire.forget()
        with pytest.raises(NoLongerLeading):
            await wire.provider.stop_instance(wire.name, instance_id)
        assert await wire.provider.describe_instance(wire.name, instance_id) is not None
        assert await wire.calls() == ["DescribeInstances"]
