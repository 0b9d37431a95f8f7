"""Live monitoring over real TLS sockets: the table of states, row by row, and every way to break.

| state        | load from  | activity from | people are told |
|--------------|------------|---------------|-----------------|
| connected    | WebSocket  | WebSocket     | connected       |
| reconnecting | REST       | REST          | nothing         |
| failed       | REST       | REST          | disconnected    |
| disabled     | REST       | REST          | nothing         |
"""

import asyncio
import gc
import hashlib
import random
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lcm.cml.connection import CmlConnections
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.tls import CmlTls, CmlTrust
from lcm.core.clock import SystemClock
from lcm.domain.errors import CertificateChanged, CredentialsRefused, Unreachable
from lcm.domain.telemetry import MonitorState, SampleSource
from lcm.domain.worker import CmlLogin
from lcm.rest.schemas import CmlCredentials
from lcm.simulator.cml.websocket import Opcode, frame
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES
from support.cml_server import HOST, CmlServer, running_cml
from support.damage import LAB, NODE, damaged_frames
from support.live import W1, Watching, a_target, watching
from support.patience import PATIENCE_SECONDS

CONNECTED, RECONNECTING = MonitorState.CONNECTED, MonitorState.RECONNECTING
FAILED, DISABLED = MonitorState.FAILED, MonitorState.DISABLED
REST, WEBSOCKET = SampleSource.REST, SampleSource.WEBSOCKET

SOON = PATIENCE_SECONDS
QUICK: dict[str, Any] = {
    "report_interval": 0.2,
    "poll_interval": 0.3,
    "first_poll_after": 0.1,
    "catch_up_after": 0.1,
    "bulk_interval": 0.1,
    "reconnect_max_interval": 0.2,
    "stable_after": 0.5,
}


async def certificate_of(server: CmlServer) -> str:
    def ask() -> str:
        pem = ssl.get_server_certificate((HOST, server.port))
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    return await asyncio.get_running_loop().run_in_executor(None, ask)


class MovableClock(SystemClock):
    """The machine's own time, which a test can put ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.ahead


@asynccontextmanager
async def watched(
    server: CmlServer, password: str = "secret", clock: SystemClock | None = None, **config: Any
) -> AsyncIterator[Watching]:
    """Our monitors, watching this server."""
    clock = clock or SystemClock()
    async with (
        CmlConnections(server.port) as transport,
        watching(
            PicowsWebSockets(transport.context, server.port),
            transport,
            clock,
            MonitoringConfig(**{**QUICK, **config}),
            password,
        ) as live,
    ):
        target = a_target(host=HOST, certificate_sha256=await certificate_of(server))
        live.registry.ensure_monitoring(target)
        yield live


def again(live: Watching) -> None:
    """The next reconcile cycle."""
    live.registry.ensure_monitoring(live.monitor.target)


@pytest.fixture
async def cml(tmp_path: Path) -> AsyncIterator[CmlServer]:
    async with running_cml(tmp_path) as server:
        yield server


def node_event(event: str = "QUEUED") -> dict[str, str]:
    return {
        "event_type": "state_change",
        "lab_id": LAB,
        "element_type": "node",
        "element_id": NODE,
        "event": event,
    }


def polls(cml: CmlServer) -> int:
    return cml.requests.count("/api/v0/system_stats")


# The table of states.


async def test_connected_everything_comes_by_the_websocket_and_people_are_told(cml: CmlServer) -> None:
    async with watched(cml, first_poll_after=SOON) as live:
        await live.until_state(CONNECTED, SOON)
        await live.until(lambda: len(live.plane.samples) >= 2, SOON)
        await cml.push(node_event())
        await live.until(lambda: live.plane.categories == ["queue_node"], SOON)
        await live.until(lambda: live.plane.published() == ["connected"], SOON)
        assert {sample.source for sample in live.plane.samples} == {WEBSOCKET}
        assert {source for source, _ in live.plane.activity} == {WEBSOCKET}
        assert polls(cml) == 0


async def test_reconnecting_rest_stands_in_and_people_are_told_nothing(cml: CmlServer) -> None:
    async with watched(cml, max_reconnect_attempts=1000) as live:
        await live.until_state(CONNECTED, SOON)
        cml.refuses_sockets = True
        await cml.cut()
        await live.until_state(RECONNECTING, SOON)
        cml.telemetry.append(
            {"category": "start_lab", "timestamp": SystemClock().now().isoformat(), "data": {}}
        )
        await live.until(lambda: live.plane.categories == ["start_lab"], SOON)
        await live.until(lambda: live.plane.samples and live.plane.samples[-1].source is REST, SOON)
        assert live.plane.activity[-1][0] is REST
        assert live.plane.published() == ["connected"]


async def test_cut_polled_failed_and_back_with_one_event_each_and_nothing_lost(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        await asyncio.sleep(0.6)  # noqa: TID251 - it must have been stable
        upgrades = cml.requests.count("/ws/ui")
        cml.refuses_sockets = True
        await cml.cut()
        await live.until_state(FAILED, SOON)
        assert cml.requests.count("/ws/ui") == upgrades + 3
        cml.telemetry.append(
            {"category": "stop_lab", "timestamp": SystemClock().now().isoformat(), "data": {}}
        )
        await live.until(lambda: polls(cml) >= 2, SOON)
        await live.until(lambda: live.plane.published() == ["connected", "disconnected"], SOON)
        await live.until(lambda: live.plane.categories == ["stop_lab"], SOON)
        assert live.plane.samples[-1].source is REST

        cml.refuses_sockets = False
        again(live)
        await live.until_state(CONNECTED, SOON)
        await live.until(lambda: live.plane.published() == ["connected", "disconnected", "connected"], SOON)
        await live.until(lambda: live.plane.samples[-1].source is WEBSOCKET, SOON)
        stopped_at = polls(cml)
        await cml.push(node_event())
        await live.until(lambda: live.plane.categories == ["stop_lab", "queue_node"], SOON)
        await asyncio.sleep(1.0)  # noqa: TID251 - three polls would have fitted in
        assert polls(cml) == stopped_at
        assert live.plane.published() == ["connected", "disconnected", "connected"]


async def test_what_was_told_live_is_not_counted_again_from_the_diary(cml: CmlServer) -> None:
    def in_diary(category: str) -> None:
        now = SystemClock().now().isoformat()
        cml.telemetry.append({"category": category, "timestamp": now, "data": {"lab_id": LAB}})

    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        await cml.has_sockets()
        await cml.push(node_event("QUEUED"))
        in_diary("queue_node")
        await live.until(lambda: live.plane.categories == ["queue_node"], SOON)
        cml.refuses_sockets = True
        await cml.cut()
        await live.until_state(FAILED, SOON)
        in_diary("start_lab")
        await live.until(lambda: live.plane.categories == ["queue_node", "start_lab"], SOON)
        cml.refuses_sockets = False
        again(live)
        await live.until_state(CONNECTED, SOON)
        await cml.has_sockets()
        in_diary("start_node")
        await cml.push(node_event("STARTED"))
        looks = cml.requests.count("/api/v0/telemetry/events")
        await live.until(lambda: len(live.plane.categories) == 3, SOON)
        cml.refuses_sockets = True
        await cml.cut()
        await live.until(lambda: cml.requests.count("/api/v0/telemetry/events") >= looks + 3, SOON)
        in_diary("stop_lab")
        await live.until(lambda: live.plane.categories[-1] == "stop_lab", SOON)
        assert live.plane.categories == ["queue_node", "start_lab", "start_node", "stop_lab"]


async def test_disabled_only_rest_is_used_and_the_record_says_so(cml: CmlServer) -> None:
    async with watched(cml, websocket_enabled=False) as live:
        await live.until(lambda: len(live.plane.samples) >= 3, SOON)
        assert live.state is DISABLED
        assert {sample.source for sample in live.plane.samples} == {REST}
        assert (cml.upgrades, [told.status for _, told in live.plane.statuses]) == (0, [DISABLED])


# Ways to break.


async def test_a_silent_zombie_is_noticed_within_the_health_timeout(cml: CmlServer) -> None:
    async with watched(cml, health_timeout=1.5, ping_after=1.0) as live:
        await live.until_state(CONNECTED, SOON)
        cml.is_silent = True
        await live.until_state(RECONNECTING, SOON)
        assert "no frame" in live.monitor.reason


async def test_a_server_that_never_speaks_is_not_connected(cml: CmlServer) -> None:
    cml.is_silent = True
    async with watched(cml, first_event_within=0.5, max_reconnect_attempts=2) as live:
        await live.until_state(FAILED, SOON)
        assert cml.upgrades == 2


async def test_a_polite_close_in_a_loop_waits_the_backoff(cml: CmlServer) -> None:
    cml.closes_with = (1000, "bye")
    clock = SystemClock()
    began = clock.monotonic()
    async with watched(cml, reconnect_max_interval=30.0) as live:
        await live.until_state(FAILED, SOON)
        assert cml.upgrades == 3
        assert clock.monotonic() - began > 0.75 * (1 + 2)


async def test_a_wrong_password_is_an_auth_failure_and_does_not_hammer(cml: CmlServer) -> None:
    async with watched(cml, password="wrong") as live:
        await live.until_state(FAILED, SOON)
        assert live.monitor.reason.startswith("auth_failed")
        for _ in range(10):
            again(live)
            await asyncio.sleep(0.2)  # noqa: TID251 - polls and cycles come and go
        assert (cml.logins <= 3, cml.upgrades) == (True, 0)
        assert live.plane.published() == ["disconnected"]


async def test_a_login_of_its_own_is_used_where_the_fleets_is_refused(cml: CmlServer) -> None:
    async with watched(cml, password="wrong") as live:
        await live.until_state(FAILED, SOON)
        live.plane.logins[W1] = CmlCredentials(username="admin", password="secret", secret_ref="its-own")
        login, target = CmlLogin(username="admin", secret_ref="its-own"), live.monitor.target
        live.registry.ensure_monitoring(replace(target, server=replace(target.server, login=login)))
        await live.until_state(CONNECTED, SOON)
        assert live.plane.published() == ["disconnected", "connected"]


async def test_after_three_refused_logins_the_next_comes_after_two_minutes(cml: CmlServer) -> None:
    clock = MovableClock()
    async with watched(cml, password="wrong", clock=clock, poll_interval=0.05) as live:
        await live.until(lambda: cml.logins == 3, SOON)
        for more_seconds in (0.0, 60.0, 50.0):
            clock.ahead += more_seconds
            again(live)
            await asyncio.sleep(0.3)  # noqa: TID251 - polls and cycles come and go
            assert cml.logins == 3
        clock.ahead += 11.0
        again(live)
        await live.until(lambda: cml.logins == 4, SOON)
        again(live)
        await asyncio.sleep(0.3)  # noqa: TID251 - polls and cycles come and go
        assert (cml.logins, cml.upgrades) == (4, 0)


async def test_refused_tokens_are_an_auth_failure(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        cml.closes_with = (3000, "Unauthorized")
        await cml.cut(3000)
        await live.until_state(FAILED, SOON)
        assert live.monitor.reason == "auth_failed: CLOSE 3000 Unauthorized"


async def test_an_expired_token_costs_one_login(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        logins = cml.logins
        cml.tokens.clear()
        await cml.cut(3000)
        await live.until_state(RECONNECTING, SOON)
        await live.until_state(CONNECTED, SOON)
        assert cml.logins == logins + 1


async def test_garbage_is_counted_and_the_connection_stays(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        await cml.has_sockets()
        for nonsense in (b"\xff\xfe" * 200, b"\x00", "{{{", "[" * 50_000, '{"event_type":7}', ""):
            await cml.push(nonsense)
        await live.until(lambda: live.registry.activity_logs[W1].messages.garbage >= 5, SOON)
        await cml.push(node_event())
        await live.until(lambda: live.plane.categories == ["queue_node"], SOON)
        assert cml.upgrades == 1


async def test_a_hundred_thousand_damaged_frames_end_nothing_and_leave_the_memory_flat(
    cml: CmlServer,
) -> None:
    next_frame = damaged_frames(random.Random(5))

    async def gust(live: Watching) -> None:
        counts = live.registry.activity_logs[W1].messages
        before = counts.total
        cml.push_raw(b"".join(frame(Opcode.TEXT, next_frame()) for _ in range(1_000)))
        await live.until(lambda: counts.total >= before + 1_000, SOON)
        live.plane.requests.clear()
        live.plane.activity.clear()

    async def storm(live: Watching, frames: int) -> None:
        for _ in range(frames // 1_000):
            await gust(live)

    def tasks() -> set[str]:
        names = {task.get_name() for task in asyncio.all_tasks()}
        return names & {"monitors", "live-reports", "ws-status", f"monitor-{W1}"}

    async with watched(cml, report_interval=0.05) as live:
        await live.until_state(CONNECTED, SOON)
        await cml.has_sockets()
        await storm(live, 20_000)
        gc.collect()
        blocks = sys.getallocatedblocks()
        await storm(live, 80_000)
        gc.collect()
        assert sys.getallocatedblocks() - blocks < 8_000
        assert len(tasks()) == 4
        await cml.push(node_event() | {"element_id": "the last one"})
        await live.until(lambda: "the last one" in [change.element_id for change in live.plane.changes], SOON)
        assert (live.state, cml.upgrades) == (CONNECTED, 1)


async def test_an_oversize_message_costs_the_connection_not_the_monitor(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        await cml.has_sockets()
        await cml.push("x" * (MAX_MESSAGE_BYTES + 1))
        await live.until_state(RECONNECTING, SOON)
        assert "1009" in live.monitor.reason
        await live.until_state(CONNECTED, SOON)


async def test_a_changed_certificate_stops_all_traffic(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        cml.push_every_seconds = None
        await cml.stop()
        first_frames, logins = len(cml.first_frames), cml.logins
        await cml.start()
        again(live)
        await live.until(lambda: live.monitor.reason.startswith("certificate_changed"), SOON)
        again(live)
        await asyncio.sleep(1.0)  # noqa: TID251 - polls come and go
        assert live.state is FAILED
        assert (len(cml.first_frames), cml.logins) == (first_frames, logins)


async def test_stopping_closes_the_socket(cml: CmlServer) -> None:
    async with watched(cml) as live:
        await live.until_state(CONNECTED, SOON)
        await cml.has_sockets()
        live.registry.stop_monitoring(W1, "the worker is stopping")
        await cml.has_sockets(0)
        await live.until(lambda: live.plane.published() == ["connected", "disconnected"], SOON)


# The shared login, over the wire.


async def test_one_login_serves_everybody_who_asks_at_once(cml: CmlServer) -> None:
    async with CmlConnections(cml.port) as transport:
        session = CmlSession(transport, always(Credentials("admin", "secret")), HOST, None, SystemClock())
        async with asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(session.get("/api/v0/system_health"))
        assert cml.logins == 1
        assert session.user_id == "our-account"
        cml.tokens.clear()
        await session.get("/api/v0/system_health")
        assert cml.logins == 2


async def test_refusals_and_failures_are_told_apart(cml: CmlServer) -> None:
    async with CmlConnections(cml.port) as transport:
        session = CmlSession(transport, always(Credentials("admin", "secret")), HOST, None, SystemClock())
        cml.failing = {"/api/v0/licensing": 403}
        with pytest.raises(CredentialsRefused, match="does not permit"):
            await session.get("/api/v0/licensing")
        cml.failing = {"/api/v0/licensing": 502}
        with pytest.raises(Unreachable, match="502"):
            await session.get("/api/v0/licensing")
        wrong = CmlSession(transport, always(Credentials("admin", "wrong")), HOST, None, SystemClock())
        for _ in range(5):
            with pytest.raises(CredentialsRefused) as refusal:
                await wrong.get("/api/v0/licensing")
            assert "wrong" not in str(refusal.value)
        assert cml.logins == 1 + 3


async def test_without_a_ca_a_verified_connection_is_refused_and_off_takes_anybody(cml: CmlServer) -> None:
    async with CmlConnections(cml.port, tls=CmlTls(CmlTrust.CA)) as transport:
        with pytest.raises(CertificateChanged):
            await transport.get(HOST, "/api/v0/system_information", None)
    strict = PicowsWebSockets(CmlTls(CmlTrust.CA).context(), cml.port)
    with pytest.raises(CertificateChanged):
        await strict.connect(HOST, None, Deaf())
    async with CmlConnections(cml.port, tls=CmlTls(CmlTrust.NONE)) as transport:
        answer = await transport.get(HOST, "/api/v0/system_information", "b" * 64)
        assert answer.certificate_sha256 is None


class Deaf:
    def on_message(self, payload: bytes) -> None: ...

    def on_pong(self) -> None: ...

    def on_closed(self, code: int, reason: str) -> None: ...
