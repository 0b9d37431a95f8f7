"""TLS between processes: what is refused without it, and that everything works with it."""

import asyncio
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from lcm.cli.own_certificates import LIFETIME, sign_certificate
from lcm.control_plane.main import control_plane_process
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.clock import SystemClock
from lcm.core.hosted_service import run_services
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import Telemetry
from lcm.core.timeouts import timeout
from lcm.core.tls import TlsFiles
from lcm.domain.errors import Unreachable
from lcm.rest.client import HttpTransport
from lcm.rest.documents import fetch_document
from lcm.rest.peer_feed import peer_feed
from lcm.web.server import HttpServer
from support.canaries import watched_session
from support.certificates import signed, trusting, with_authority
from support.fleet import REGION, TEMPLATES
from support.patience import PATIENCE_SECONDS
from support.processes import lcm_to_its_end, running_lcm

BRIEF = 0.3


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(scope["scheme"])(scope, receive, send)


@asynccontextmanager
async def serving(
    files: TlsFiles, host: str = "127.0.0.1", header_seconds: float = 600
) -> AsyncIterator[HttpServer]:
    server = HttpServer("test", hello, host, 0, header_seconds=header_seconds, tls=files)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        yield server
        running.cancel()


async def test_a_server_with_a_certificate_answers_nothing_in_clear(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane")
    async with serving(files) as server, HttpTransport(server.url, tls=files.client_context()) as transport:
        assert server.url.startswith("https://")
        assert await transport.send("GET", "/", {}, None) == (200, b"https")
        async with HttpTransport(server.url.replace("https", "http")) as plain:
            with pytest.raises(Unreachable):
                await plain.send("GET", "/", {}, None)


async def test_a_key_is_not_sent_to_a_server_of_another_authority(tmp_path: Path) -> None:
    ours, theirs = signed(tmp_path / "ours", "plane"), signed(tmp_path / "theirs", "plane")
    async with serving(theirs) as server, HttpTransport(server.url, tls=ours.client_context()) as transport:
        with pytest.raises(Unreachable, match="certificate"):
            await transport.send("GET", "/", {"X-API-Key": "secret"}, None)
        feed = peer_feed(server.url, "secret", ours.client_context())
        with pytest.raises(Unreachable, match="certificate"):
            await anext(feed)


async def test_a_renewed_certificate_is_served_without_a_restart_or_a_lost_connection(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane")
    trust = trusting(files)
    async with serving(files) as server, AsyncExitStack() as stack:

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
            stack.callback(writer.close)
            return reader, writer

        reader, kept = await connect()
        signed(tmp_path, "plane")
        _, later = await connect()
        before, after = (writer.get_extra_info("peercert")["serialNumber"] for writer in (kept, later))
        assert before != after
        kept.write(b"GET / HTTP/1.1\r\nHost: lcm\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200"), "the open connection goes on"


async def test_the_end_that_is_measured_is_that_of_the_certificate_in_use(tmp_path: Path) -> None:
    files, later = signed(tmp_path, "plane"), SystemClock().now() + timedelta(days=30)
    renewed = sign_certificate(tmp_path, "renewed", ["lcm"], later)
    telemetry = Telemetry()

    def measured() -> float:
        name = "lcm_tls_certificate_expiry_timestamp_seconds"
        [value] = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", telemetry.render().decode(), re.MULTILINE)
        return float(value)

    async with serving(files) as server, HttpTransport(server.url, tls=files.client_context()) as transport:
        await transport.send("GET", "/", {}, None)
        server.register_metrics(telemetry)
        before = measured()
        assert renewed.certificate is not None
        assert renewed.key is not None
        assert files.certificate is not None
        assert files.key is not None
        shutil.copy(renewed.certificate, files.certificate)
        assert measured() == before, "its key is not there yet"
        shutil.copy(renewed.key, files.key)
        assert measured() == pytest.approx((later + LIFETIME).timestamp(), abs=1)


async def test_a_handshake_that_is_not_finished_is_cut_off(tmp_path: Path) -> None:
    async with serving(signed(tmp_path, "plane"), header_seconds=BRIEF) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with suppress(ConnectionResetError):
            async with timeout(PATIENCE_SECONDS):
                assert await reader.read() == b""
        writer.close()


async def test_an_address_beyond_loopback_without_tls_is_warned_about(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane")
    unknown = "127.1"  # loopback still, but not written as any that LCM knows
    assert await warnings_of(TlsFiles(), "127.0.0.1") == []
    assert await warnings_of(files, unknown) == []
    (remedy,) = await warnings_of(TlsFiles(), unknown)
    assert "LCM_TLS_CERT_FILE" in remedy


async def warnings_of(files: TlsFiles, host: str) -> list[str]:
    """The remedies that a server at this address names."""
    with capture_logs() as logs:
        async with serving(files, host) as server, watched_session() as session:
            own = trusting(files) if files.certificate else True
            async with session.get(server.url.replace(host, "127.0.0.1"), ssl=own) as response:
                assert response.status == 200
    warned = [log for log in logs if log["event"] == "address served without TLS"]
    assert {log["log_level"] for log in warned} <= {"warning"}
    return [log["remedy"] for log in warned]


async def test_without_a_client_certificate_no_key_opens_the_internal_routes(tmp_path: Path) -> None:
    plane, controller = signed(tmp_path / "tls", "plane"), signed(tmp_path / "tls", "controller")
    files = with_authority(plane, clients=True)
    settings = ControlPlaneSettings(
        port=0,
        data_dir=tmp_path / "data",
        worker_templates_config_path=TEMPLATES,
        tls_cert_file=files.certificate,
        tls_key_file=files.key,
        tls_ca_file=files.authority,
        tls_client_ca_file=files.client_authority,
    )
    clock, ids = SystemClock(), RandomIds()
    kv = MemoryKv(clock, ids)
    own = controller.client_context()
    assert own is not None
    async with (
        control_plane_process(settings, kv, clock, ids, {"us-east-1": REGION}, fetch_document) as process,
        asyncio.TaskGroup() as tasks,
    ):
        running = tasks.create_task(run_services(kv, *process.services))
        headers = {"X-API-Key": process.keys.controller, "X-LCM-Service": "worker-controller"}

        async def status_of(path: str, context: ssl.SSLContext, given: Mapping[str, str]) -> int:
            async with (
                watched_session() as session,
                session.get(f"{process.url}{path}", ssl=context, headers=given) as response,
            ):
                await response.read()
                return response.status

        internal, people = "/api/internal/workers", {"Authorization": f"Bearer {process.keys.viewer}"}
        assert await status_of(internal, trusting(plane), headers) == 403
        assert await status_of(internal, own.get(), headers) == 200
        assert await status_of(internal, own.get(), {}) == 401, "a certificate is no key"
        assert await status_of("/api/workers", trusting(plane), people) == 200, "people have none"
        async with aclosing(peer_feed(process.url, process.keys.controller, own)) as feed:
            assert await anext(feed), "a peer shows its certificate, too"
        with pytest.raises(Unreachable, match="answers 403"):
            await anext(
                peer_feed(
                    process.url, process.keys.controller, TlsFiles(authority=plane.authority).client_context()
                )
            )
        running.cancel()


async def test_lcm_up_with_tls_encrypts_between_all_its_processes_and_its_commands_follow() -> None:
    with running_lcm("--tls", "--workers", "1") as lcm:
        ready = lcm.ready
        assert ready.ca_file is not None
        trust = TlsFiles(authority=Path(ready.ca_file)).client_context()
        assert trust is not None
        async with watched_session(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            for process in ("control_plane", "worker_controller", "resource_scheduler", "lablet_controller"):
                address = f"127.0.0.1:{ready.ports[process]}"
                async with browser.get(f"https://{address}/health", ssl=trust.get()) as response:
                    assert response.status == 200, process
                with pytest.raises(aiohttp.ClientError):
                    await browser.get(f"http://{address}/health")
            async with browser.get(ready.url, ssl=trust.get(), allow_redirects=False) as response:
                cookie = response.headers["Set-Cookie"]
                assert cookie.startswith("__Host-lcm_session=")
                assert "Secure" in cookie
        made = lcm_to_its_end(
            "token", "create", "--name", "ci", "--role", "viewer", "--data-dir", ready.data_dir
        )
        assert made.code == 0, made.stderr
        listed = lcm_to_its_end(
            "get",
            "workers",
            LCM_URL=f"https://127.0.0.1:{ready.ports['control_plane']}",
            LCM_TOKEN=made.stdout.strip(),
            LCM_CA_FILE=ready.ca_file,
        )
        assert listed.code == 0, listed.stderr
        assert "ccna-morning" in listed.stdout
