"""Two control planes on one MongoDB and one etcd: it makes no difference which one people talk to."""

import json
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
from support.etcd import etcd_cluster
from support.ha import KEY, LcmProcess
from support.mongodb import mongo_server


class Planes:
    """The two, and a token that both accept."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        mongo = stack.enter_context(mongo_server())
        etcd = stack.enter_context(etcd_cluster())
        regions = directory / "regions.yaml"
        region = {"region": "us-east-1", "security_group_ids": ["sg-1"], "subnet_id": "subnet-1"}
        regions.write_text(yaml.safe_dump({"aws_region_configs": {"us-east-1": region}}))
        environment = {
            "STORE_URL": mongo.database("lcm_two_planes"),
            "ETCD_ENDPOINTS": etcd.endpoints[0],
            "CONTROL_PLANE_API_KEY": KEY,
            "REGIONS_CONFIG_PATH": str(regions),
            "LCM_DATA_DIR": str(directory / "data"),
        }
        self.here, self.there = (
            LcmProcess(name, ("control-plane",), environment) for name in ("here", "there")
        )
        for plane in (self.here, self.there):
            stack.callback(plane.forget)
            plane.start()
            plane.wait_until_answering()
        self.token: str = json.loads((directory / "data" / "keys.json").read_text())["admin"]


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    with ExitStack() as stack:
        yield Planes(tmp_path_factory.mktemp("planes"), stack)


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


async def internal(plane: LcmProcess, path: str, body: Any, epoch: int = 0) -> tuple[int, Any]:
    headers = {API_KEY_HEADER: KEY, SERVICE_HEADER: "worker-controller", EPOCH_HEADER: str(epoch)}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
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
