"""Import and orphans end to end: real processes, EC2's wire protocol, real CML servers."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiobotocore.session import get_session

from lcm.domain.launch import WorkerId, client_token
from lcm.domain.template import RegionConfig
from support.api import Api
from support.canaries import watched_session
from support.processes import RunningLcm, eventually, running_lcm


@pytest.fixture(scope="module")
def lcm() -> Iterator[RunningLcm]:
    with running_lcm("--workers", "0", WORKER_DISCOVERY_TAG_FILTER="fleet=old") as running:
        yield running


@pytest.fixture
async def region(lcm: RunningLcm) -> RegionConfig:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{lcm.ready.aws_endpoint}/_lcm/simulation") as response,
    ):
        return msgspec.convert((await response.json())["regions"][0], RegionConfig)


@pytest.fixture
async def ec2(lcm: RunningLcm) -> AsyncIterator[Any]:
    """A person with the SDK, who knows nothing of LCM."""
    client = get_session().create_client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=lcm.ready.aws_endpoint,
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    async with client as ec2:
        yield ec2


@pytest.fixture
async def controller(lcm: RunningLcm) -> AsyncIterator[aiohttp.ClientSession]:
    keys = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    headers = {"X-API-Key": keys["controller"]}
    async with watched_session(lcm.worker_controller_url, headers=headers) as session:
        yield session


async def launch(ec2: Any, region: RegionConfig, tags: dict[str, str], token: str | None = None) -> str:
    images = await ec2.describe_images(Filters=[{"Name": "name", "Values": ["CML-2.9.1*"]}])
    answer = await ec2.run_instances(
        ImageId=images["Images"][0]["ImageId"],
        InstanceType="t3.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=region.subnet_id,
        SecurityGroupIds=list(region.security_group_ids),
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
        ],
        **({"ClientToken": token} if token else {}),
    )
    return str(answer["Instances"][0]["InstanceId"])


async def look_now(controller: aiohttp.ClientSession) -> None:
    async with controller.post("/admin/trigger-discovery") as response:
        assert response.status == 202


async def workers_with(api: Api, instance_id: str) -> list[Any]:
    page = await api.get("/api/workers?include_terminated=true&limit=500")
    return [worker for worker in page["items"] if worker["ec2_instance_id"] == instance_id]


async def test_h7_an_existing_machine_is_imported_once_and_lives_as_a_worker(
    api: Api, ec2: Any, region: RegionConfig, controller: aiohttp.ClientSession
) -> None:
    """H7: import the same instance twice."""
    instance_id = await launch(ec2, region, {"fleet": "old", "Name": "Old Lab"})
    async with api.stream() as stream:
        await stream.until("connected")
        await look_now(controller)
        event = await stream.until("worker.imported")
    assert event["data"]["worker"]["ec2_instance_id"] == instance_id
    [worker] = await workers_with(api, instance_id)
    assert (worker["name"], worker["imported"], worker["template_name"]) == ("old-lab", True, "large")
    assert worker["ami_name"] == "CML-2.9.1-20260415"
    worker = await api.until(worker, "running", cml_ready=True)
    await look_now(controller)

    async def looked_again() -> bool:
        async with controller.get("/metrics") as response:
            scans = [line for line in (await response.text()).splitlines() if 'what="scans"' in line]
        return any(float(line.rsplit(" ", 1)[1]) >= 2 for line in scans)

    await eventually(looked_again)
    assert len(await workers_with(api, instance_id)) == 1
    await api.act(worker, "stop")
    await api.until(worker, "stopped")
    await api.act(worker, "delete")
    await api.until(worker, "terminated")


async def test_a_planted_machine_gets_no_login_before_an_admin_adopts_it(
    lcm: RunningLcm, api: Api, ec2: Any, region: RegionConfig, controller: aiohttp.ClientSession
) -> None:
    """H2: whoever may tag an instance got the password of the fleet."""
    instance_id = await launch(ec2, region, {"fleet": "old", "Name": "Stranger"})

    async def logins() -> int:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{lcm.ready.aws_endpoint}/_lcm/cml/workers/{instance_id}") as response,
        ):
            found = await response.json()
        return int(found["counters"].get("logins", 0))

    async with api.stream() as stream:
        await stream.until("connected")
        await look_now(controller)
        [worker] = await eventually(lambda: workers_with(api, instance_id))
        shown = await api.until(worker, "running", cml_ready=True)
        assert (shown["is_trusted"], shown["ws_connected"]) == (False, False)
        assert shown["discovered"]["vpc_id"].startswith("vpc-")
        assert shown["discovered"]["owner_id"]
        path, certificate = f"/api/workers/{worker['id']}", shown["cml_certificate_sha256"]
        status, problem = await api.call("POST", f"{path}/adopt", {"certificate_sha256": "b" * 64})
        assert (status, problem["type"]) == (409, "urn:lcm:problem:conflict")
        assert certificate in problem["detail"]
        status, problem = await api.call("POST", f"{path}/license", {"token": "a-token-of-an-account"})
        assert (status, problem["type"]) == (409, "urn:lcm:problem:conflict")
        assert await logins() == 0
        adopted = await api.accepted("POST", f"{path}/adopt", {"certificate_sha256": certificate})
        assert (adopted["is_trusted"], adopted["discovered"]["adopted_by"]) == (True, "admin")
        assert (await stream.until("worker.adopted"))["data"]["worker"]["id"] == worker["id"]
    await api.until(worker, "running", ws_connected=True)
    assert await logins() == 1
    [entry] = (await api.get(f"/api/audit?target={worker['id']}&action=adopt"))["items"]
    assert entry["principal_name"] == "admin"
    await api.act(worker, "delete")
    await api.until(worker, "terminated")


async def test_an_orphan_is_shown_and_left_alone(
    api: Api, ec2: Any, region: RegionConfig, controller: aiohttp.ClientSession
) -> None:
    tags = {
        "lcm:managed_by": "lablet-cloud-manager",
        "cml-environment": "production",
        "worker_id": "w-forgotten",
    }
    instance_id = await launch(ec2, region, tags, client_token(WorkerId("w-forgotten"), 1))
    await look_now(controller)

    async def shown() -> Any:
        async with controller.get("/admin/orphans") as response:
            view = await response.json()
        return next((o for o in view["orphans"] if o["instance_id"] == instance_id), None)

    orphan = await eventually(shown)
    assert (orphan["kind"], orphan["worker_id"]) == ("no_record", "w-forgotten")
    async with controller.get("/admin/orphans") as response:
        view = await response.json()
    assert view["may_terminate"] is False
    assert "less than 10 minutes" in view["dry_run_reasons"]["us-east-1"]
    async with controller.get("/metrics") as response:
        assert 'worker_orphan_instances{kind="no_record",region="us-east-1"} 1' in await response.text()


async def test_discovery_settings_can_be_changed_and_reset(api: Api) -> None:
    empty = {"enabled": None, "regions": None, "tag_filter": None, "ami_filter": None}
    before = await api.get("/api/settings/discovery")
    assert {name: before[name] for name in empty} == empty
    change = {"regions": ["us-east-1"], "ami_filter": "CML-*"}
    seen = {"If-Match": f'"{before["version"]}"'}
    status, after = await api.call("PATCH", "/api/settings/discovery", change, headers=seen)
    assert status == 200
    assert (after["regions"], after["ami_filter"], after["tag_filter"]) == (["us-east-1"], "CML-*", None)
    assert after["version"] == before["version"] + 1
    mars = {"regions": ["mars-north-1"]}
    status, problem = await api.call("PATCH", "/api/settings/discovery", mars, headers={"If-Match": "*"})
    assert (status, problem["type"]) == (422, "urn:lcm:problem:unknown-reference")
    back = {"regions": None, "ami_filter": None}
    status, reset = await api.call("PATCH", "/api/settings/discovery", back, headers={"If-Match": "*"})
    assert (status, {name: reset[name] for name in empty}) == (200, empty)


async def test_settings_are_changed_only_by_somebody_who_has_seen_them(api: Api) -> None:
    async with api.session.get("/api/settings/discovery") as response:
        seen = response.headers["ETag"]
    change = {"ami_filter": "CML-2.9*"}
    status, problem = await api.call("PATCH", "/api/settings/discovery", change)
    assert (status, problem["type"]) == (428, "urn:lcm:problem:precondition-required")
    async with api.session.patch(
        "/api/settings/discovery", json=change, headers={"If-Match": seen}
    ) as response:
        assert response.status == 200
        now = response.headers["ETag"]
    status, problem = await api.call(
        "PATCH", "/api/settings/discovery", {"ami_filter": "CML-2.8*"}, headers={"If-Match": seen}
    )
    assert (status, problem["type"]) == (412, "urn:lcm:problem:precondition-failed")
    assert (await api.get("/api/settings/discovery"))["ami_filter"] == "CML-2.9*"
    await api.call("PATCH", "/api/settings/discovery", {"ami_filter": None}, headers={"If-Match": now})


async def test_cleanup_over_http_is_dry_when_asked(lcm: RunningLcm, api: Api) -> None:
    keys = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    headers = {"X-API-Key": keys["controller"], "X-LCM-Service": "worker-controller", "X-LCM-Epoch": "1"}
    async with watched_session(lcm.url, headers=headers) as session:
        async with session.post("/api/internal/workers/cleanup", json={"dry_run": True}) as response:
            assert response.status == 200
            assert await response.json() == {"worker_ids": [], "dry_run": True, "retention_days": 30}
        async with session.post("/api/internal/workers/cleanup", json={"retention_days": 366}) as response:
            assert response.status == 422
