"""Two control planes on one MongoDB and one etcd: it makes no difference which one people talk to."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from lcm.rest.schemas import API_KEY_HEADER, EPOCH_HEADER, SERVICE_HEADER
from support.api import EventStream, person
from support.canaries import watched_session
from support.etcd import etcd_cluster
from support.ha import KEY, LcmProcess
from support.mongodb import mongo_server
from support.ports import reserve_port
from support.processes import eventually


class Planes:
    """The two, and a token that both accept."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        mongo = stack.enter_context(mongo_server())
        etcd = stack.enter_context(etcd_cluster())
        regions = directory / "regions.yaml"
        region = {"region": "us-east-1", "security_group_ids": ["sg-1"], "subnet_id": "subnet-1"}
        regions.write_text(yaml.safe_dump({"aws_region_configs": {"us-east-1": region}}))
        ports = reserve_port(), reserve_port()  # each has to know where the other is
        environment = {
            "CONTROL_PLANE_PEERS": ",".join(f"http://127.0.0.1:{port}" for port in ports),
            "STORE_URL": mongo.database("lcm_two_planes"),
            "ETCD_ENDPOINTS": etcd.endpoints[0],
            "CONTROL_PLANE_API_KEY": KEY,
            "REGIONS_CONFIG_PATH": str(regions),
            "LCM_DATA_DIR": str(directory / "data"),
        }
        self.here, self.there = (
            LcmProcess(name, ("control-plane",), environment, port=port)
            for name, port in zip(("here", "there"), ports, strict=True)
        )
        for plane in (self.here, self.there):
            stack.callback(plane.forget)
            plane.start()
            plane.wait_until_answering()
        self.token: str = json.loads((directory / "data" / "keys.json").read_text())["admin"]

    async def follow_each_other(self) -> None:
        """Wait until what happens at one is heard of at the other."""

        async def do() -> bool:
            async with watched_session() as session:
                for plane in (self.here, self.there):
                    async with session.get(f"{plane.url}/metrics") as response:
                        followed = re.findall(
                            r"^lcm_control_plane_peer_followed\S* (\S+)", await response.text(), re.MULTILINE
                        )
                    if [float(value) for value in followed] != [1.0, 1.0]:
                        return False
            return True

        await eventually(do)


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    with ExitStack() as stack:
        yield Planes(tmp_path_factory.mktemp("planes"), stack)


@pytest.fixture(autouse=True)
async def _planes_follow_each_other(planes: Planes) -> None:
    await planes.follow_each_other()


async def told_of(stream: EventStream, worker_id: str, version: int) -> list[int]:
    """The versions of a worker that a stream tells, up to this one."""
    versions: list[int] = []
    while version not in versions:
        event = await stream.next()
        worker = (event.get("data") or {}).get("worker") or {}
        if worker.get("id") == worker_id:
            versions.append(worker["version"])
    return versions


async def test_a_stream_of_either_plane_tells_what_happens_at_the_other(planes: Planes) -> None:
    async with (
        person(planes.here.url, planes.token) as here,
        person(planes.there.url, planes.token) as there,
        here.stream() as stream_here,
        there.stream() as stream_there,
    ):
        for stream in (stream_here, stream_there):
            await stream.until("connected")
        worker = await here.create("told")
        assert await told_of(stream_there, worker["id"], worker["version"]) == [worker["version"]]
        changed = await there.act(worker, "stop")
        assert changed["version"] > worker["version"]
        assert (await told_of(stream_here, worker["id"], changed["version"]))[-1] == changed["version"]
        assert (await here.get(f"/api/workers/{worker['id']}"))["version"] == changed["version"]


async def test_a_name_is_taken_at_both(planes: Planes) -> None:
    async with person(planes.here.url, planes.token) as here, person(planes.there.url, planes.token) as there:
        await here.create("taken")
        status, problem = await there.call(
            "POST", "/api/workers", {"name": "taken", "template_name": "small"}
        )
        assert (status, problem["title"]) == (409, "Name taken")


async def test_what_a_controller_reports_at_one_is_seen_at_the_other(planes: Planes) -> None:
    """Activity, the live connection, labs and load never touch a key of etcd, and are seen all the same."""
    async with (
        person(planes.here.url, planes.token) as here,
        person(planes.there.url, planes.token) as there,
        there.stream() as stream,
    ):
        await stream.until("connected")
        worker = await here.create("reported")
        claim = {"service": "worker-controller", "cluster_id": "x", "revision": 1, "instance_id": "ada"}
        epoch = (await internal(planes.here, "/leadership", claim))[1]["epoch"]

        async def report(what: str, body: Any) -> None:
            status, answer = await internal(planes.here, f"/workers/{worker['id']}/{what}", body, epoch)
            assert status == 200, answer

        for version, status in enumerate(("provisioning", "starting", "running"), start=1):
            await report("status", {"status": status, "reason": "test", "expected_version": version})
        instance = {"id": "i-1", "region": "us-east-1", "state": "running"}
        instance |= {"instance_type": "t3.small", "image_id": "ami-1"}
        await report("ec2-details", {"instance": instance, "expected_version": 4})
        await report("ws-status", {"connected": True, "status": "connected", "reason": ""})
        at = "2026-01-01T00:00:00Z"
        signs = {"activity_events": [{"category": "start_lab", "at": at}], "source": "websocket"}
        await report("activity-events", signs)
        lab = {"lab_id": "l1", "element_type": "lab", "element_id": "l1", "event": "STARTED", "data": {}}
        await report("lab-state-change", lab)
        await report("metrics", {"collected_at": at, "source": "websocket", "cpu_utilization": 42.0})

        assert (await stream.until("worker.ws.connected"))["data"]["worker_id"] == worker["id"]
        assert (await stream.until("worker.activity.updated"))["data"]["last_activity_at"] == at
        assert (await stream.until("worker.lab.state_change"))["data"]["lab_id"] == "l1"
        batch = (await stream.until_batch("worker.metrics.updated"))["data"]
        assert [event["cpu_utilization"] for event in batch["events"]] == [42.0]

        live = await there.get(f"/api/workers/{worker['id']}/resources")
        assert [sample["cpu_utilization"] for sample in live["samples"]] == [42.0]
        assert [lab["lab_id"] for lab in (await there.get(f"/api/workers/{worker['id']}/labs"))["items"]] == [
            "l1"
        ]
        seen = await there.get(f"/api/workers/{worker['id']}")
        assert (seen["ws_connected"], seen["last_activity_at"]) == (True, at)


async def internal(plane: LcmProcess, path: str, body: Any, epoch: int = 0) -> tuple[int, Any]:
    headers = {API_KEY_HEADER: KEY, SERVICE_HEADER: "worker-controller", EPOCH_HEADER: str(epoch)}
    async with (
        watched_session(headers=headers) as session,
        session.post(f"{plane.url}/api/internal{path}", json=body) as response,
    ):
        return response.status, await response.json()


async def test_an_epoch_claimed_at_one_fences_writes_at_the_other(planes: Planes) -> None:
    async with person(planes.here.url, planes.token) as here:
        worker = await here.create("fenced")
    claim = {"service": "worker-controller", "cluster_id": "test", "revision": 1, "instance_id": "ada"}
    status, first = await internal(planes.here, "/leadership", claim)
    assert status == 200
    seen = {"ready": True, "version": "2.9", "certificate_sha256": None}
    path = f"/workers/{worker['id']}/cml-data"
    assert (await internal(planes.there, path, seen, first["epoch"]))[0] == 200
    status, second = await internal(
        planes.there, "/leadership", {**claim, "revision": 2, "instance_id": "bob"}
    )
    assert second["epoch"] > first["epoch"]
    for plane in (planes.here, planes.there):
        status, problem = await internal(plane, path, {**seen, "version": "0.0"}, first["epoch"])
        assert (status, problem["title"]) == (409, "No longer the leader")
    assert (await internal(planes.here, path, {**seen, "version": "2.10"}, second["epoch"]))[0] == 200


async def test_when_one_is_killed_the_other_serves_on_and_nothing_acknowledged_is_lost(
    planes: Planes,
) -> None:
    async with person(planes.here.url, planes.token) as here, person(planes.there.url, planes.token) as there:
        before = await here.create("before")
        planes.here.end(signal.SIGKILL)
        with pytest.raises(aiohttp.ClientError):
            await here.get("/api/workers")
        assert (await there.get(f"/api/workers/{before['id']}"))["name"] == "before"
        after = await there.create("after")
        planes.here.start()
        planes.here.wait_until_answering()
        with suppress(aiohttp.ClientError):  # a connection of the killed one
            await here.get("/api/workers")
        assert (await here.get(f"/api/workers/{after['id']}"))["name"] == "after"
        await planes.follow_each_other()
