"""The simulated EC2, through the real SDK."""

import asyncio
import itertools
from ipaddress import ip_address, ip_network
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import BotoCoreError

from lcm.core.clock import SystemClock
from support.patience import PATIENCE_SECONDS

PRIVATE = ip_network("127.64.0.0/17")
PUBLIC = ip_network("127.64.128.0/17")


_numbers = itertools.count(1)


def new_token() -> str:
    """One that no other test uses."""
    return f"lcm-token-{next(_numbers)}"


# Launching


async def test_the_same_token_gives_the_same_instance(cloud: Any) -> None:
    token = new_token()
    first = await cloud.launch(token)
    assert await cloud.launch(token) == first
    assert await cloud.instances_with("client-token", token) == [first]


async def test_a_token_with_other_parameters_is_refused(cloud: Any) -> None:
    token = new_token()
    await cloud.launch(token)
    with cloud.refuses("IdempotentParameterMismatch"):
        await cloud.launch(token, InstanceType="t3.small")


async def test_a_token_whose_instance_is_terminated_is_refused(cloud: Any) -> None:
    token = new_token()
    instance_id = await cloud.launch(token)
    await cloud.ec2.terminate_instances(InstanceIds=[instance_id])
    with cloud.refuses("IdempotentInstanceTerminated"):
        await cloud.launch(token)
    await cloud.reaches(instance_id, "terminated")
    with cloud.refuses("IdempotentInstanceTerminated"):
        await cloud.launch(token)


async def test_a_token_belongs_to_one_region(cloud: Any, other_cloud: Any) -> None:
    token = new_token()
    assert await cloud.launch(token) != await other_cloud.launch(token)


async def test_a_failed_launch_does_not_use_up_its_token(cloud: Any) -> None:
    token = new_token()
    with cloud.refuses("InvalidAMIID.NotFound"):
        await cloud.launch(token, ImageId="ami-00000000000000000")
    await cloud.launch(token)


async def test_launches_with_different_tokens_are_different_instances(cloud: Any) -> None:
    assert await cloud.launch(new_token()) != await cloud.launch(new_token())


async def test_parallel_launches_with_one_token_make_one_instance(cloud: Any) -> None:
    token = new_token()
    async with asyncio.TaskGroup() as tasks:
        launches = [tasks.create_task(cloud.launch(token)) for _ in range(8)]
    assert len({launch.result() for launch in launches}) == 1


async def test_an_unknown_instance_type_is_refused(cloud: Any) -> None:
    with cloud.refuses("InvalidInstanceType.NotFound"):
        await cloud.launch(InstanceType="t99.enormous")


async def test_the_metal_type_of_the_templates_can_be_launched_everywhere(
    cloud: Any, other_cloud: Any
) -> None:
    await cloud.launch(InstanceType="m5zn.metal")
    await other_cloud.launch(InstanceType="m5zn.metal")


async def test_instances_are_found_by_tag_and_by_id(cloud: Any) -> None:
    tags = [{"Key": "worker_id", "Value": new_token()}]
    instance_id = await cloud.launch(TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])
    assert await cloud.instances_with("tag:worker_id", tags[0]["Value"]) == [instance_id]
    assert await cloud.instances_with("instance-id", instance_id) == [instance_id]
    assert (await cloud.describe(instance_id))["Tags"] == tags


async def test_an_unknown_filter_is_an_ec2_error(cloud: Any) -> None:
    with cloud.refuses("UnsupportedOperation"):
        await cloud.instances_with("shoe-size", "44")


# Images


async def test_the_newest_image_name_has_the_newest_date(cloud: Any) -> None:
    names = [image["Name"] for image in await cloud.images()]
    assert names == ["CML-2.9.1-20260415", "CML-2.9.0-20251102", "CML-2.8.1-20250310"]
    assert all(image["Description"] for image in await cloud.images())


async def test_an_image_that_is_not_cml_is_newer_than_all(cloud: Any) -> None:
    newest = (await cloud.images("*"))[0]
    assert not newest["Name"].startswith("CML-")


# Moving from state to state


async def test_an_instance_takes_its_time_from_launch_to_termination(cloud: Any) -> None:
    launched = await cloud.request_launch()
    instance_id = launched["InstanceId"]
    assert launched["State"]["Name"] == "pending"
    await cloud.reaches(instance_id, "running")
    assert await cloud.move("stop", instance_id) == ("running", "stopping")
    await cloud.reaches(instance_id, "stopped")
    assert await cloud.move("start", instance_id) == ("stopped", "pending")
    await cloud.reaches(instance_id, "running")
    assert await cloud.move("terminate", instance_id) == ("running", "shutting-down")
    await cloud.reaches(instance_id, "terminated")


async def test_a_start_renews_the_launch_time(cloud: Any) -> None:
    instance_id = (await cloud.running())["InstanceId"]
    launched_at = (await cloud.describe(instance_id))["LaunchTime"]

    async def restarted_at_a_later_second() -> bool:  # EC2 tells launch times in whole seconds
        await cloud.move("stop", instance_id)
        await cloud.reaches(instance_id, "stopped")
        await cloud.move("start", instance_id)
        started = await cloud.reaches(instance_id, "running")
        return bool(started["LaunchTime"] > launched_at)

    assert await cloud.eventually(restarted_at_a_later_second)


async def test_a_terminated_instance_can_only_be_terminated(cloud: Any) -> None:
    instance_id = await cloud.terminated()
    for call in (cloud.ec2.start_instances, cloud.ec2.stop_instances, cloud.ec2.reboot_instances):
        with cloud.refuses("IncorrectInstanceState"):
            await call(InstanceIds=[instance_id])
    assert await cloud.move("terminate", instance_id) == ("terminated", "terminated")


async def test_asking_for_the_present_state_changes_nothing(cloud: Any) -> None:
    instance_id = (await cloud.running())["InstanceId"]
    assert await cloud.move("start", instance_id) == ("running", "running")
    await cloud.move("stop", instance_id)
    await cloud.reaches(instance_id, "stopped")
    assert await cloud.move("stop", instance_id) == ("stopped", "stopped")


async def test_one_wrong_instance_spoils_the_whole_call(cloud: Any) -> None:
    running = (await cloud.running())["InstanceId"]
    with cloud.refuses("IncorrectInstanceState"):
        await cloud.ec2.stop_instances(InstanceIds=[running, await cloud.terminated()])
    assert await cloud.state(running) == "running"


async def test_an_instance_of_another_region_is_unknown(cloud: Any, other_cloud: Any) -> None:
    instance_id = await cloud.launch()
    with cloud.refuses("InvalidInstanceID.NotFound"):
        await other_cloud.ec2.terminate_instances(InstanceIds=[instance_id])


# Addresses


async def test_all_addresses_are_on_loopback_and_regions_do_not_share_them(
    cloud: Any, other_cloud: Any
) -> None:
    here, there = await cloud.running(), await other_cloud.running()
    for instance in (here, there):
        assert ip_address(instance["PrivateIpAddress"]) in PRIVATE
        assert ip_address(instance["PublicIpAddress"]) in PUBLIC
    assert here["PrivateIpAddress"] != there["PrivateIpAddress"]
    assert here["PublicIpAddress"] != there["PublicIpAddress"]


async def test_only_a_running_instance_has_a_public_address_and_each_start_brings_a_new_one(
    cloud: Any,
) -> None:
    launched = await cloud.request_launch()
    instance_id = launched["InstanceId"]
    assert "PublicIpAddress" not in launched
    first = await cloud.reaches(instance_id, "running")

    await cloud.ec2.stop_instances(InstanceIds=[instance_id])
    stopped = await cloud.reaches(instance_id, "stopped")
    assert "PublicIpAddress" not in stopped

    await cloud.ec2.start_instances(InstanceIds=[instance_id])
    second = await cloud.reaches(instance_id, "running")
    assert second["PublicIpAddress"] != first["PublicIpAddress"]
    assert second["PrivateIpAddress"] == stopped["PrivateIpAddress"] == first["PrivateIpAddress"]


async def test_an_instance_without_a_subnet_or_with_a_public_interface_stays_on_loopback(cloud: Any) -> None:
    plain = await cloud.ec2.run_instances(
        ImageId=(await cloud.images())[0]["ImageId"], MinCount=1, MaxCount=1
    )
    nic = {"DeviceIndex": 0, "AssociatePublicIpAddress": True, "SubnetId": cloud.region.subnet_id}
    special = await cloud.ec2.run_instances(
        ImageId=(await cloud.images())[0]["ImageId"], MinCount=1, MaxCount=1, NetworkInterfaces=[nic]
    )
    for answer in (plain, special):
        instance = await cloud.reaches(answer["Instances"][0]["InstanceId"], "running")
        assert ip_address(instance["PrivateIpAddress"]) in PRIVATE
        assert ip_address(instance["PublicIpAddress"]) in PUBLIC


# Faults


async def test_an_error_strikes_as_often_as_told(cloud: Any) -> None:
    await cloud.fault(
        operation="RunInstances", kind="error", count=2, code="InsufficientInstanceCapacity", status=500
    )
    for _ in range(2):
        with cloud.refuses("InsufficientInstanceCapacity"):
            await cloud.launch()
    await cloud.launch()


async def test_a_fault_without_a_count_lasts_until_it_is_cleared(cloud: Any) -> None:
    await cloud.fault(
        operation="DescribeInstances", kind="error", count=None, code="RequestLimitExceeded", status=503
    )
    for _ in range(3):
        with cloud.refuses("RequestLimitExceeded"):
            await cloud.ec2.describe_instances()
    await cloud.control("DELETE", "faults")
    await cloud.ec2.describe_instances()


async def test_a_fault_for_one_instance_spares_the_others(cloud: Any) -> None:
    unlucky, lucky = await cloud.running(), await cloud.running()
    await cloud.fault(
        operation="StopInstances", kind="error", instance_id=unlucky["InstanceId"], code="InternalError"
    )
    await cloud.ec2.stop_instances(InstanceIds=[lucky["InstanceId"]])
    with cloud.refuses("InternalError"):
        await cloud.ec2.stop_instances(InstanceIds=[unlucky["InstanceId"]])


async def test_a_hanging_call_holds_up_nobody_else_and_has_no_effect(cloud: Any) -> None:
    instance_id = (await cloud.running())["InstanceId"]
    await cloud.fault(operation="StopInstances", kind="hang")

    async def stop() -> None:
        with pytest.raises(BotoCoreError):
            await cloud.ec2.stop_instances(InstanceIds=[instance_id])

    async with asyncio.TaskGroup() as tasks:
        hanging = tasks.create_task(stop())
        assert await cloud.state(instance_id) == "running"
        await cloud.launch()
        assert not hanging.done()
        await cloud.control("DELETE", "faults")
    assert await cloud.state(instance_id) == "running"


async def test_a_delayed_call_succeeds_later(cloud: Any) -> None:
    await cloud.fault(operation="DescribeInstances", kind="delay", seconds=0.3)
    began = asyncio.get_running_loop().time()
    await cloud.ec2.describe_instances()
    assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_launch_whose_reply_is_lost_has_happened_and_its_token_finds_it(cloud: Any) -> None:
    token = new_token()
    await cloud.fault(operation="RunInstances", kind="lose_reply")
    with pytest.raises(BotoCoreError):
        await cloud.launch(token)
    (made,) = await cloud.instances_with("client-token", token)
    assert await cloud.launch(token) == made
    assert await cloud.instances_with("client-token", token) == [made]


async def test_every_ec2_call_is_on_record_with_its_outcome(cloud: Any) -> None:
    token = new_token()
    await cloud.control("DELETE", "calls")
    await cloud.launch(token)
    with cloud.refuses("InvalidInstanceID.NotFound"):
        await cloud.ec2.stop_instances(InstanceIds=["i-00000000000000000"])
    _, launch, stop = await cloud.control("GET", "calls")
    assert (launch["n"], launch["operation"], launch["region"]) == (2, "RunInstances", "us-east-1")
    assert (launch["client_token"], launch["outcome"]) == (token, "ok")
    assert (stop["instance_ids"], stop["outcome"]) == (["i-00000000000000000"], "InvalidInstanceID.NotFound")


async def test_a_misspelt_fault_is_refused(cloud: Any) -> None:
    with pytest.raises(aiohttp.ClientResponseError, match="400"):
        await cloud.fault(operation="StopInstances", kind="explode")


# Behind the controller's back


async def test_the_console_stops_starts_and_terminates(cloud: Any) -> None:
    instance_id = (await cloud.running())["InstanceId"]
    await cloud.console("stop", instance_id)
    await cloud.reaches(instance_id, "stopped")
    await cloud.console("start", instance_id)
    await cloud.reaches(instance_id, "running")
    await cloud.console("terminate", instance_id)
    await cloud.reaches(instance_id, "terminated")


async def test_a_forgotten_instance_was_never_there(cloud: Any) -> None:
    instance_id = (await cloud.running())["InstanceId"]
    await cloud.console("forget", instance_id)
    with cloud.refuses("InvalidInstanceID.NotFound"):
        await cloud.describe(instance_id)
    listing = await cloud.control("GET", "instances")
    assert instance_id not in {instance["id"] for instance in listing["instances"]}


async def test_the_listing_tells_what_a_machine_knows_about_itself(cloud: Any) -> None:
    tags = [{"Key": "Name", "Value": "lab-1"}]
    before = SystemClock().now().timestamp()
    instance_id = await cloud.launch(TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])
    described = await cloud.reaches(instance_id, "running")
    listing = await cloud.control("GET", "instances")
    (listed,) = [instance for instance in listing["instances"] if instance["id"] == instance_id]
    assert before < listed.pop("running_since") < SystemClock().now().timestamp()
    assert listed == {
        "id": instance_id,
        "region": "us-east-1",
        "disk_gb": 16,
        "has_kvm": False,
        "state": "running",
        "private_ip": described["PrivateIpAddress"],
        "public_ip": described["PublicIpAddress"],
        "image_name": "CML-2.9.1-20260415",
        "image_id": described["ImageId"],
        "instance_type": "t3.large",
        "tags": {"Name": "lab-1"},
        "generation": 1,
    }


async def test_the_listing_waits_for_news_and_a_changed_tag_is_news(cloud: Any) -> None:
    instance_id = (await cloud.running())["InstanceId"]
    before = (await cloud.control("GET", "instances"))["version"]
    async with asyncio.TaskGroup() as tasks:
        news = tasks.create_task(cloud.control("GET", f"instances?after={before}&wait=30"))
        await cloud.ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "colour", "Value": "blue"}])
    assert news.result()["version"] != before
    listing = await cloud.control("GET", "instances")
    (listed,) = [instance for instance in listing["instances"] if instance["id"] == instance_id]
    assert listed["tags"] == {"colour": "blue"}


# The process


async def test_no_web_page_reads_or_changes_the_simulation(cloud: Any) -> None:
    page = {"Origin": "https://evil.example"}
    listing = {"Action": "DescribeInstances", "Version": "2016-11-15"}
    async with aiohttp.ClientSession(cloud.info.aws_endpoint, headers=page) as http:
        for method, path, body in (
            ("POST", "/", listing),
            ("OPTIONS", "/", None),
            ("POST", "/_lcm/faults", {"operation": "*", "kind": "hang"}),
            ("PUT", "/_lcm/simulation", {}),
        ):
            async with http.request(method, path, data=body) as response:
                assert response.status == 403, path
                assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_simulation_can_be_known_from_its_endpoint_alone(cloud: Any) -> None:
    told = await cloud.control("GET", "simulation")
    assert told["aws_endpoint"] == cloud.info.aws_endpoint
    assert told["cml_password"] == cloud.info.cml_password
    assert [region["region"] for region in told["regions"]] == ["us-east-1", "eu-west-1"]


async def test_the_aws_process_dies_with_a_killed_simulator(start_simulator: Any, open_cloud: Any) -> None:
    with start_simulator() as simulator:
        async with open_cloud(simulator.info) as cloud:
            assert await cloud.is_reachable()
            simulator.process.kill()
            await cloud.is_silent()


async def test_a_terminated_simulator_ends_quickly_and_quietly(start_simulator: Any, open_cloud: Any) -> None:
    with start_simulator() as simulator:
        simulator.process.terminate()
        assert simulator.process.wait(timeout=PATIENCE_SECONDS) == 0
        assert simulator.stderr() == ""
        async with open_cloud(simulator.info) as cloud:
            assert not await cloud.is_reachable()
