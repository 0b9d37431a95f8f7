"""Labs of a CML server over TLS: listed as they are, and changed only as a person requested."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from lcm.cml.connection import CmlConnections
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.sessions import CmlServer, server_of
from lcm.core.clock import SystemClock
from lcm.core.health import Health
from lcm.core.telemetry import Telemetry
from lcm.domain.launch import InstanceId, WorkerId
from lcm.lablet_controller.adapters.cml_labs import CmlLabsClient
from lcm.lablet_controller.discovery import LabDiscovery
from lcm.lablet_controller.extraction import ConfigExtraction
from lcm.lablet_controller.gate import LabGate
from lcm.lablet_controller.lab_requests import LabRequests
from lcm.lablet_controller.stats import Stats
from lcm.rest.client import HttpTransport
from lcm.rest.lablet_client import LabletClient
from lcm.rest.plane_clock import PlaneClock
from lcm.rest.schemas import LABLET_CONTROLLER
from lcm.simulator.cml import faults
from lcm.simulator.cml.site import Site
from support.api import Json
from support.lablet_bench import LAB
from support.labs_over_tls import ADMIN, HOST, cml_over_tls
from support.lone_plane import LonePlane, lone_plane
from support.processes import eventually

INSTANCE = {
    "id": "i-1",
    "region": "us-east-1",
    "state": "running",
    "instance_type": "m5zn.metal",
    "image_id": "ami-1",
    "public_ip": HOST,
}


@dataclass
class Fixture:
    """A control plane and a controller as separate parties, and a CML server that both know as a worker."""

    plane: LonePlane
    site: Site
    labs: CmlLabsClient
    server: CmlServer
    discovery: LabDiscovery
    requests: LabRequests

    async def import_lab(self, title: str) -> str:
        return (await self.labs.import_lab(self.server, LAB, title=title)).lab_id

    async def discover(self) -> None:
        await self.plane.admin.accepted("POST", f"/api/workers/{self.plane.worker_id}/labs/discover")
        await self.discovery.run_pass()

    async def listed(self) -> dict[str, Json]:
        page = await self.plane.admin.get("/api/labs")
        return {lab["lab_id"]: lab for lab in page["items"]}

    async def request(self, lab_id: str, action: str, body: Json | None = None) -> None:
        path = f"/api/workers/{self.plane.worker_id}/labs/{lab_id}/{action}"
        await self.plane.admin.accepted("POST", path, body)

    async def carry_out(self, until: Callable[[], Awaitable[bool]]) -> None:
        async def is_done() -> bool:
            async with asyncio.TaskGroup() as extractions:
                await self.requests.run_pass(extractions)
            return await until()

        await eventually(is_done)


@asynccontextmanager
async def opened(data_dir: Path) -> AsyncIterator[Fixture]:
    clock, key = SystemClock(), None
    async with (
        lone_plane(data_dir) as plane,
        cml_over_tls() as (site, port),
        CmlConnections(port=port) as connections,
        HttpTransport(plane.url) as transport,
    ):
        key = plane.controller.headers["X-API-Key"]
        worker = await plane.admin.get(f"/api/workers/{plane.worker_id}")
        report = {"instance": INSTANCE, "expected_version": worker["version"]}
        await plane.accepted("/{id}/ec2-details", report)
        await plane.accepted("/{id}/cml-data", {"ready": True, "version": "2.9.0"})
        epoch = [0]
        client = LabletClient(transport, key, LABLET_CONTROLLER, lambda: epoch[0], PlaneClock(clock))
        epoch[0] = await client.claim_leadership("c", 1, "l")
        session = CmlSession(
            connections, always(Credentials(ADMIN.username, ADMIN.password)), HOST, None, clock
        )
        labs = CmlLabsClient(lambda _: session, clock)
        health, stats = Health(clock), Stats(Telemetry())
        find_server = partial(server_of, use_private_ip=False)
        gate = LabGate(labs, client, client.get_fleet_id, lambda: None)
        yield Fixture(
            plane,
            site,
            labs,
            CmlServer(WorkerId(plane.worker_id), InstanceId("i-1"), HOST, None, None),
            LabDiscovery(client, labs, find_server, clock, health, stats, interval_seconds=300),
            LabRequests(
                client,
                labs,
                gate,
                find_server,
                clock,
                health,
                stats,
                action_timeout_seconds=180,
                extraction=ConfigExtraction(client, labs, gate, find_server),
            ),
        )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with opened(tmp_path) as fixture:
        yield fixture


async def test_every_lab_of_a_server_is_listed_with_its_ports_and_definitions(bench: Fixture) -> None:
    lab_id = await bench.import_lab("of a person")
    await bench.discover()
    lab = (await bench.listed())[lab_id]
    assert (lab["title"], lab["kind"], lab["state"]) == ("of a person", "foreign", "DEFINED_ON_CORE")
    assert (lab["tag_ports"], lab["node_count"], lab["owner"]) == ([5001], 2, "admin")
    status, worker = await bench.plane.reported("GET", f"/workers/{bench.plane.worker_id}")
    assert status == 200
    assert worker["cml"]["labs"]["foreign_ports"] == [5001]
    assert {"alpine", "unmanaged_switch"} <= set(worker["cml"]["definitions"]["node_definitions"])


async def test_a_lab_is_started_and_removed_as_requested(bench: Fixture) -> None:
    lab_id, other = await bench.import_lab("of a person"), await bench.import_lab("another")
    await bench.discover()
    await bench.request(lab_id, "start")

    async def is_started() -> bool:
        return (await bench.listed())[lab_id]["request"] is None

    await bench.carry_out(is_started)
    await bench.discover()
    assert (await bench.listed())[lab_id]["state"] == "STARTED"
    await bench.request(lab_id, "remove", {"title": "of a person"})

    async def is_gone() -> bool:
        return lab_id not in await bench.listed()

    await bench.carry_out(is_gone)
    assert (await bench.labs.list_labs(bench.server)).lab_ids == (other,)


async def test_a_server_that_fails_loses_no_lab(bench: Fixture) -> None:
    lab_id = await bench.import_lab("of a person")
    await bench.discover()
    bench.site.apply_fault(faults.Http(status=502))
    await bench.discover()
    await bench.discover()
    lab = (await bench.listed())[lab_id]
    assert (lab["kind"], lab["missing_since"]) == ("foreign", None)
