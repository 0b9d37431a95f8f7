"""Which CML servers are trusted, through which proxy they are reached, how long answers may take."""

import asyncio
import base64
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lcm.cml.connection import CmlConnections
from lcm.cml.proxy import Proxy
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.tls import CmlTls, CmlTrust
from lcm.core.clock import SystemClock
from lcm.domain.errors import CertificateChanged, Unreachable
from lcm.simulator.cml.certificate import self_signed_context
from lcm.simulator.cml.faults import Slow
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from support.labs_over_tls import ADMIN, cml_over_tls

HOST = "127.0.0.1"
PATH = "/api/v0/system_information"


@asynccontextmanager
async def https_server(context: ssl.SSLContext) -> AsyncIterator[tuple[int, list[str]]]:
    """A server with this certificate; the paths it is asked for."""
    paths: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        paths.append(request.path)
        if request.path != "/ws/ui":
            return web.Response(text="{}")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            paths.append(f"/ws/ui received {message.data}")
        return socket

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1], paths
    finally:
        await runner.cleanup()


class Ca:
    """An authority of the operator's own, and the servers' certificates that it signs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = self._sign("authority", self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.file = directory / "ca.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def context_for(self, *names: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        certificate = self._sign("server", key, alternatives)
        file = self._directory / "server.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = SystemClock().now()
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(extension, critical=True)
            .sign(self._key, hashes.SHA256())
        )


class Deaf:
    def on_message(self, payload: bytes) -> None: ...

    def on_pong(self) -> None: ...

    def on_closed(self, code: int, reason: str) -> None: ...


@pytest.mark.parametrize("name", ["lab7.cml.example.com", "LAB7.cml.example.com"])
async def test_with_a_ca_a_server_is_trusted_by_its_name_whatever_its_address_is(
    tmp_path: Path, name: str
) -> None:
    ca = Ca(tmp_path)
    tls = CmlTls(CmlTrust.CA, ca.file, ("other.example.com", "*.cml.example.com"))
    async with (
        https_server(ca.context_for(name)) as (port, paths),
        CmlConnections(port, tls=tls) as connections,
    ):
        assert (await connections.get(HOST, PATH, None)).certificate_sha256 is None
        (await PicowsWebSockets(connections.context, port).connect(HOST, None, Deaf())).close()
    assert paths == [PATH, "/ws/ui"]


@pytest.mark.parametrize(
    ("name", "host_names", "why"),
    [
        ("lab7.elsewhere.example.com", ("*.cml.example.com",), "it is for lab7.elsewhere.example.com"),
        ("lab7.cml.example.com", (), "IP address mismatch"),
    ],
)
async def test_with_a_ca_a_server_of_another_name_is_sent_nothing(
    tmp_path: Path, name: str, host_names: tuple[str, ...], why: str
) -> None:
    ca = Ca(tmp_path)
    async with (
        https_server(ca.context_for(name)) as (port, paths),
        CmlConnections(port, tls=CmlTls(CmlTrust.CA, ca.file, host_names)) as connections,
    ):
        with pytest.raises(CertificateChanged, match=why):
            await connections.get(HOST, PATH, None)
        with pytest.raises(CertificateChanged, match=why):
            await PicowsWebSockets(connections.context, port).connect(HOST, None, Deaf())
    assert paths in ([], ["/ws/ui"])  # which has no secret in it: the token would be the first message


async def test_a_name_proves_nothing_without_the_authority(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    known, other = Ca(tmp_path), Ca(tmp_path / "other")
    tls = CmlTls(CmlTrust.CA, known.file, ("*.cml.example.com",))
    async with (
        https_server(other.context_for("lab7.cml.example.com")) as (port, paths),
        CmlConnections(port, tls=tls) as connections,
    ):
        with pytest.raises(CertificateChanged, match=r"self-signed|local issuer|signature"):
            await connections.get(HOST, PATH, None)
    assert paths == []


# A proxy.


class ConnectProxy:
    """Opens tunnels to loopback, whatever address is asked for, and writes down what it was asked."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.asked: list[tuple[str, str]] = []
        """Host and authorization of each tunnel."""
        self.status = b"200 Connection established"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        self.asked.append((head[0].split()[1], headers.get("Proxy-Authorization", "")))
        writer.write(b"HTTP/1.1 " + self.status + b"\r\n\r\n")
        if not self.status.startswith(b"200"):
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(HOST, self._target_port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(reader, far_writer))
            tasks.create_task(_pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_cml_is_reached_through_the_proxy_and_its_certificate_pinned_all_the_same(
    tmp_path: Path,
) -> None:
    context = self_signed_context("i-1", tmp_path)
    async with https_server(context) as (port, paths):
        proxy = ConnectProxy(port)
        async with proxy.running() as proxy_port:
            through = Proxy.parse(f"http://lcm:s%40same@{HOST}:{proxy_port}")
            async with CmlConnections(port, proxy=through) as connections:
                pin = (await connections.get("cml.example.com", PATH, None)).certificate_sha256
                assert pin is not None
                await connections.get("cml.example.com", PATH, pin)
                websockets = PicowsWebSockets(connections.context, port, proxy=through)
                (await websockets.connect("cml.example.com", pin, Deaf())).close()
                with pytest.raises(CertificateChanged):
                    await websockets.connect("cml.example.com", "b" * 64, Deaf())
                wrong = hashlib.sha256(b"another").hexdigest()
                with pytest.raises(CertificateChanged):
                    await connections.get("cml.example.com", PATH, wrong)
    assert paths == [PATH, PATH, "/ws/ui", "/ws/ui"]
    login = f"Basic {base64.b64encode(b'lcm:s@same').decode()}"
    assert {host for host, _ in proxy.asked} == {f"cml.example.com:{port}"}
    assert {authorization for _, authorization in proxy.asked} == {login}


async def test_a_proxy_that_opens_no_tunnel_is_named(tmp_path: Path) -> None:
    proxy = ConnectProxy(0)
    proxy.status = b"403 Forbidden"
    async with proxy.running() as port:
        through = Proxy.parse(f"http://{HOST}:{port}")
        async with CmlConnections(443, proxy=through) as connections:
            with pytest.raises(Unreachable, match=r"proxy|403"):
                await connections.get("cml.example.com", PATH, None)


# Time limits.


async def test_each_kind_of_call_has_its_own_time_limit() -> None:
    async with cml_over_tls() as (site, port), CmlConnections(port, timeout_seconds=0.3) as connections:
        host = site.server.instance.private_ip
        login = Credentials(ADMIN.username, ADMIN.password)
        patient = CmlSession(connections, always(login), host, None, SystemClock(), login_seconds=30.0)
        site.apply_fault(Slow(seconds=1.0, path="/api/v0/authenticate"))
        await patient.token()
        site.apply_fault(Slow(seconds=1.0, path="/api/v0/telemetry"))
        with pytest.raises(Unreachable, match="timed out"):
            await patient.get("/api/v0/telemetry/events")
        await patient.get("/api/v0/telemetry/events", timeout_seconds=30.0)
