"""TLS to CML: trust on first use, then only that certificate."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from lcm.cml.connection import CmlConnections
from lcm.domain.errors import CertificateChanged, Unreachable
from lcm.simulator.cml.certificate import self_signed_context
from lcm.worker_controller.adapters.cml_system import CmlSystemSpiClient
from support.labs_over_tls import cml_over_tls

HOST = "127.0.0.1"


@asynccontextmanager
async def cml_server(
    directory: Path, status: int = 200, body: str = "{}", seen: list[web.BaseRequest] | None = None
) -> AsyncIterator[int]:
    """A server with a certificate of its own; what it is asked goes into `seen`."""

    async def answer(request: web.BaseRequest) -> web.Response:
        if seen is not None:
            seen.append(request)
        return web.Response(status=status, text=body)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0, ssl_context=self_signed_context("i-1", directory))
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


INFORMATION = '{"version":"2.9.1+build.7","ready":true,"allow_ssh_pubkey_auth":false,"oui":null}'


async def test_the_first_contact_learns_the_certificate_and_the_next_insists_on_it(tmp_path: Path) -> None:
    async with cml_server(tmp_path, body=INFORMATION) as port, CmlConnections(port) as connections:
        cml = CmlSystemSpiClient(connections)
        first = await cml.get_system_information(HOST, None)
        assert (first.version, first.ready) == ("2.9.1+build.7", True)
        assert len(first.certificate_sha256 or "") == 64
        again = await cml.get_system_information(HOST, first.certificate_sha256)
        assert again == first


async def test_the_version_is_asked_for_without_login(tmp_path: Path) -> None:
    seen: list[web.BaseRequest] = []
    async with cml_server(tmp_path, body=INFORMATION, seen=seen) as port, CmlConnections(port) as connections:
        await CmlSystemSpiClient(connections).get_system_information(HOST, None)
    assert [request.path for request in seen] == ["/api/v0/system_information"]
    assert "Authorization" not in seen[0].headers


async def test_another_certificate_stops_the_conversation(tmp_path: Path) -> None:
    async with cml_server(tmp_path, body=INFORMATION) as port, CmlConnections(port) as connections:
        with pytest.raises(CertificateChanged, match="pinned is"):
            await connections.get(HOST, "/api/v0/system_information", "ab" * 32)


@pytest.mark.parametrize(("keep_alive_seconds", "more"), [(None, 3), (60.0, 0)])
async def test_requests_share_a_connection_only_where_it_is_kept(
    keep_alive_seconds: float | None, more: int
) -> None:
    path = "/api/v0/system_information"
    async with (
        cml_over_tls() as (site, port),
        CmlConnections(port, keep_alive_seconds=keep_alive_seconds) as connections,
    ):
        pin = (await connections.get(site.server.instance.private_ip, path, None)).certificate_sha256
        before = site.server.counters["connections"]
        for _ in range(3):
            await connections.get(site.server.instance.private_ip, path, pin)
        assert site.server.counters["connections"] == before + more


async def test_a_connection_that_is_kept_is_not_used_for_another_certificate(tmp_path: Path) -> None:
    async with (
        cml_server(tmp_path) as port,
        CmlConnections(port, keep_alive_seconds=60.0) as connections,
    ):
        await connections.get(HOST, "/", None)
        with pytest.raises(CertificateChanged, match="pinned is"):
            await connections.get(HOST, "/", "ab" * 32)


async def test_a_booting_cml_is_unreachable_not_broken(tmp_path: Path) -> None:
    async with cml_server(tmp_path, status=502, body="<html>") as port, CmlConnections(port) as connections:
        with pytest.raises(Unreachable, match="502"):
            await connections.get(HOST, "/api/v0/system_information", None)
    async with CmlConnections(port) as connections:
        with pytest.raises(Unreachable):
            await connections.get(HOST, "/api/v0/system_information", None)


@pytest.mark.parametrize(
    "body", ["", "[]", '{"version": 3}', "not json", '{"version":"2.9.1"}', "[" * 100_000]
)
async def test_an_answer_that_makes_no_sense_is_unreachable(tmp_path: Path, body: str) -> None:
    async with cml_server(tmp_path, body=body) as port, CmlConnections(port) as connections:
        with pytest.raises(Unreachable):
            await CmlSystemSpiClient(connections).get_system_information(HOST, None)


async def test_whatever_else_cml_tells_is_kept_unless_it_is_long_or_nested(tmp_path: Path) -> None:
    told = {"oui": None, "features": ["a"], "banner": "x" * 201, "motd": "hello", "uptime": 3.5, "ssh": False}
    body = json.dumps({"version": "2.9.1", "ready": True, **told})
    async with cml_server(tmp_path, body=body) as port, CmlConnections(port) as connections:
        information = await CmlSystemSpiClient(connections).get_system_information(HOST, None)
    assert information.more == {"oui": None, "motd": "hello", "uptime": 3.5, "ssh": False}


async def test_of_too_much_that_cml_tells_some_is_kept(tmp_path: Path) -> None:
    body = json.dumps({"version": "2.9.1", "ready": True, **{f"fact-{n:04}": n for n in range(1_000)}})
    async with cml_server(tmp_path, body=body) as port, CmlConnections(port) as connections:
        information = await CmlSystemSpiClient(connections).get_system_information(HOST, None)
    assert information.more == {f"fact-{n:04}": n for n in range(50)}
