"""The controllers' client against the real application: every refusal arrives as the error it stands for."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcm.control_plane.main import control_plane_process
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.clock import SystemClock
from lcm.core.hosted_service import HostedService, run_services
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.errors import Conflict, Fenced, IllegalTransition, Unreachable
from lcm.domain.license import LicenseOperation
from lcm.domain.lifecycle import FAILED, RUNNING
from lcm.domain.worker import CmlLicense, Worker
from lcm.rest.client import ControlPlaneClient, HttpTransport
from lcm.rest.documents import fetch_document
from lcm.rest.schemas import LicenseReport
from lcm.web.server import HttpServer
from support.api import person
from support.fleet import REGION, TEMPLATES


@asynccontextmanager
async def running(*services: HostedService) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run_services(*services))
        yield
        task.cancel()


@dataclass
class Plane:
    """A control plane, a controller's client of it, and a worker to talk about."""

    client: ControlPlaneClient
    worker: Worker


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    clock, ids = SystemClock(), RandomIds()
    kv = MemoryKv(clock, ids)
    settings = ControlPlaneSettings(port=0, data_dir=tmp_path, worker_templates_config_path=TEMPLATES)
    async with (
        control_plane_process(settings, kv, clock, ids, {"us-east-1": REGION}, fetch_document) as process,
        running(kv, *process.services),
        person(process.url, process.keys.admin) as admin,
    ):
        created = await admin.create("talked-about")
        epoch = 0
        async with HttpTransport(process.url) as transport:
            client = ControlPlaneClient(
                transport, process.keys.controller, "worker-controller", lambda: epoch
            )
            worker = await client.fetch_single_resource(created["id"])
            assert worker is not None
            epoch = await client.claim_leadership("etcd", 1, "a")
            yield Plane(client, worker)


async def test_records_arrive_whole(plane: Plane) -> None:
    assert await plane.client.list_resources() == [plane.worker]
    assert plane.worker.state_history[0].reason == "created"


async def test_what_is_not_there_is_none(plane: Plane) -> None:
    assert await plane.client.fetch_single_resource("nobody") is None
    assert await plane.client.get_worker_template("nothing") is None


async def test_a_template_arrives_whole(plane: Plane) -> None:
    template = await plane.client.get_worker_template("metal")
    assert template is not None
    assert (template.instance_type, template.usd_per_hour) == ("m5zn.metal", 3.9641)


async def test_a_report_changes_exactly_the_version_that_was_read(plane: Plane) -> None:
    failed = await plane.client.update_status(plane.worker, FAILED, "tried")
    assert (failed.status, failed.version) == (FAILED, plane.worker.version + 1)
    with pytest.raises(Conflict):
        await plane.client.update_status(plane.worker, FAILED, "again, from an old copy")


async def test_what_cml_said_of_a_license_that_has_changed_since_is_not_stored(plane: Plane) -> None:
    said = CmlLicense(registration_status="NOT_REGISTERED")
    held = LicenseReport(is_held=True, tier="CML_Enterprise", expected_version=plane.worker.version)
    changed = await plane.client.report_license(plane.worker, "observe", LicenseOperation.REGISTER, held)
    assert (await plane.client.report_cml_health(plane.worker, None, said)).cml.license is None
    assert (await plane.client.report_cml_health(changed, None, said)).cml.license == said


async def test_a_status_outside_the_table_is_refused_with_the_allowed_ones(plane: Plane) -> None:
    with pytest.raises(IllegalTransition) as refusal:
        await plane.client.update_status(plane.worker, RUNNING, "wishful")
    assert refusal.value.allowed == ["failed", "provisioning", "terminated"]


async def test_an_older_epoch_is_fenced(plane: Plane) -> None:
    await plane.client.claim_leadership("etcd", 2, "b")
    with pytest.raises(Fenced):
        await plane.client.report_cml(
            plane.worker, ready=True, version="2.9.1", certificate_sha256=None, system_info={}
        )
    with pytest.raises(Fenced):
        await plane.client.claim_leadership("etcd", 1, "a")


def client_of(transport: HttpTransport) -> ControlPlaneClient:
    return ControlPlaneClient(transport, "key", "worker-controller", lambda: 1)


async def test_no_answer_means_unreachable() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but it never listens
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with HttpTransport(url) as transport:
            with pytest.raises(Unreachable):
                await client_of(transport).list_resources()


@pytest.mark.parametrize(("status", "body"), [(500, b"oops"), (502, b"<html>"), (429, b"{}"), (503, b"")])
async def test_an_answer_that_makes_no_sense_means_unreachable(status: int, body: bytes) -> None:
    async def answer(_: Request) -> Response:
        return Response(body, status)

    server = HttpServer("senseless", Starlette(routes=[Route("/{path:path}", answer)]), "127.0.0.1", 0)
    async with (
        running(server),
        HttpTransport(server.url) as transport,
    ):
        with pytest.raises(Unreachable):
            await client_of(transport).list_resources()


async def test_an_answer_that_never_comes_is_given_up() -> None:
    async def hang(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    server = HttpServer("hanging", Starlette(routes=[Route("/{path:path}", hang)]), "127.0.0.1", 0)
    async with (
        running(server),
        HttpTransport(server.url, timeout_seconds=0.1) as transport,
    ):
        with pytest.raises(Unreachable):
            await client_of(transport).fetch_single_resource("w")
