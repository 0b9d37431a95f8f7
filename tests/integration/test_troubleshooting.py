"""The help for operators tells the truth: each fault it names leads to the log line it shows.

The faults, the words of the log and the series are read from the page, so neither can change alone.
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from lcm.cml.connection import CmlConnections
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlSessions
from lcm.core.clock import SystemClock
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.telemetry import Telemetry
from lcm.domain.telemetry import SampleSource
from lcm.worker_controller.adapters.picows_websocket import PicowsWebSockets
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.service import assemble_monitoring, register_monitoring_metrics
from lcm.worker_controller.ports import MonitorTarget
from support.live import CollectingControlPlane, Watching, a_target
from support.memory_live import MemoryMetrics
from support.patience import PATIENCE_SECONDS
from support.processes import RunningSimulator, running_simulator

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "troubleshoot-monitoring.md").read_text()
FAULTS = re.findall(r"^\$ curl -X POST \$CML/faults -d '([^']+)'", PAGE, re.MULTILINE)

SOON = PATIENCE_SECONDS
QUICK: dict[str, Any] = {
    "report_interval": 0.2,
    "poll_interval": 0.3,
    "first_poll_after": 0.1,
    "bulk_interval": 0.1,
    "reconnect_max_interval": 0.2,
    "health_timeout": 1.5,
    "ping_after": 0.5,
    "pong_within": 5.0,
    "first_event_within": 1.0,
    "stable_after": 0.5,
    "sweep_seconds": 0.1,
}


def fault(kind: str, **about: Any) -> str:
    """As the page writes it."""
    return json.dumps({"kind": kind, **about})


CUT = fault("close", code=1006)

NOT_CONNECTING = [
    (fault("http", status=403, path="/api/v0/authenticate"), "auth_failed", "refuses the login of 'admin'"),
    (
        fault("close", code=3000, reason="Unauthorized", lasting=True),
        "auth_failed",
        "CLOSE 3000 Unauthorized",
    ),
    (fault("refuse"), "broken", "connection refused"),
    (fault("http", status=502, path="/ws/ui"), "broken", "but received 502"),
    (fault("silence"), "broken", "no event within"),
    (fault("certificate"), "certificate_changed", "presents the certificate"),
]
"""What a new connection meets. The last one stays for good."""

FALLING_BACK = [
    (fault("silence"), {}, "no frame for"),
    (
        fault("silence", answer_pings=False),
        {"health_timeout": 60.0, "pong_within": 0.5},
        "no answer to a ping",
    ),
    (CUT, {}, "CLOSE 1006"),
    (fault("oversize"), {}, "CLOSE 1009 message too big"),
    (fault("close", code=1000, lasting=True), {}, "CLOSE 1000"),
]
"""What an open connection meets, and how patient it is."""

STALE = [fault("garbage", lasting=True), fault("slow", seconds=20, path="/api/v0/")]


def test_every_fault_of_the_page_is_tried_here() -> None:
    tried = {row[0] for row in NOT_CONNECTING} | {row[0] for row in FALLING_BACK} | {*STALE}
    assert set(FAULTS) == tried


@pytest.fixture(scope="module")
def simulation() -> Iterator[RunningSimulator]:
    with running_simulator("--workers", "1", "--no-people") as running:
        yield running


class Cml:
    """The simulated server, and what the page's commands do to it."""

    def __init__(self, simulation: RunningSimulator, http: aiohttp.ClientSession) -> None:
        self._info = simulation.info
        self._http = http
        (self.worker,) = self._info.workers
        self.port = self._info.cml_port

    async def strike(self, fault: str) -> None:
        await self.control("POST", "faults", json.loads(fault))

    async def control(self, method: str, path: str, body: Any = None) -> None:
        async with self._http.request(method, f"{self._info.control_url}/cml/{path}", json=body) as response:
            assert response.status < 300, await response.text()


@pytest.fixture
async def cml(simulation: RunningSimulator) -> AsyncIterator[Cml]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS)) as http:
        cml = Cml(simulation, http)
        await cml.control("PATCH", "workers", {"stats_seconds": 0.2})
        yield cml
        await cml.control("DELETE", "faults")


class Operator:
    """Sees what the page tells to look at."""

    def __init__(
        self, live: Watching, telemetry: Telemetry, log: list[EventDict], target: MonitorTarget
    ) -> None:
        self.live = live
        self._telemetry = telemetry
        self._log = log
        self._target = target

    async def sees(self, is_it: Callable[[], object]) -> None:
        """Wait for it, while reconcile cycles pass."""

        def look() -> object:
            self.live.registry.ensure_monitoring(self._target)
            return is_it()

        await self.live.until(look, SOON)

    async def reads(self, line: str, is_it: Callable[[EventDict], bool]) -> EventDict:
        """Wait for such a line in the log."""

        def found() -> list[EventDict]:
            return [entry for entry in self._log if entry["event"] == line and is_it(entry)]

        await self.sees(found)
        return found()[0]

    def value_of(self, series: str, **labels: str) -> float | None:
        """Of this worker's series, which the page names."""
        assert series in PAGE
        for line in self._telemetry.render().decode().splitlines():
            if line.startswith(series + "{") and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                return float(line.rsplit(" ", 1)[1])
        return None

    def is_connected(self) -> bool:
        return self.value_of("lcm_worker_websocket_connected") == 1.0


@asynccontextmanager
async def watched(cml: Cml, **config: Any) -> AsyncIterator[Operator]:
    """Connected, and delivering."""
    clock = SystemClock()
    plane, health, telemetry = CollectingControlPlane(clock), Health(clock), Telemetry()
    with capture_logs() as log:
        async with CmlConnections(cml.port, timeout_seconds=1.0) as transport, asyncio.TaskGroup() as tasks:
            monitoring = assemble_monitoring(
                MonitoringConfig(**{**QUICK, **config}),
                control_plane=plane,
                websockets=PicowsWebSockets(transport.context, cml.port),
                sessions=CmlSessions(transport, Credentials("admin", cml.worker.password), plane, clock),
                cloud_metrics=MemoryMetrics([]),
                clock=clock,
                ids=RandomIds(),
                chance=random.Random(1),
                health=health,
            )
            register_monitoring_metrics(telemetry, monitoring, clock)
            target = a_target(host=cml.worker.private_ip, certificate_sha256=None)
            running = tasks.create_task(monitoring.run())
            try:
                live = Watching(clock, plane, monitoring.registry, health)
                operator = Operator(live, telemetry, log, target)
                await operator.sees(operator.is_connected)
                yield operator
            finally:
                running.cancel()


@pytest.mark.parametrize(("fault", "reason", "detail"), NOT_CONNECTING)
async def test_why_it_does_not_connect_is_in_the_log(cml: Cml, fault: str, reason: str, detail: str) -> None:
    assert f"`{reason}`" in PAGE
    assert detail in PAGE or reason == "certificate_changed"
    async with watched(cml) as operator:
        await cml.strike(fault)
        await cml.strike(CUT)
        await operator.reads(
            "websocket failed",
            lambda entry: entry["reason"] == reason and detail in entry["detail"],
        )
        assert not operator.is_connected()
        await operator.sees(lambda: operator.live.plane.statuses[-1][1].reason.startswith(f"{reason}: "))


@pytest.mark.parametrize(("fault", "patience", "detail"), FALLING_BACK)
async def test_why_it_falls_back_is_in_the_log_each_time(
    cml: Cml, fault: str, patience: dict[str, float], detail: str
) -> None:
    assert f"`{detail}" in PAGE
    async with watched(cml, **patience) as operator:
        await cml.strike(fault)
        line = await operator.reads("websocket lost", lambda entry: detail in entry["detail"])
        assert line["reason"] == "broken"
        await operator.sees(lambda: (operator.value_of("lcm_worker_websocket_reconnects_total") or 0) >= 1)


async def test_garbage_is_counted_as_such(cml: Cml) -> None:
    async with watched(cml) as operator:
        await cml.strike(STALE[0])
        await operator.sees(
            lambda: (operator.value_of("lcm_worker_websocket_messages_total", event_type="garbage") or 0) >= 2
        )


async def test_the_age_tells_frames_that_come_from_frames_that_do_not(cml: Cml) -> None:
    age = "lcm_worker_websocket_last_message_age_seconds"
    async with watched(cml, health_timeout=60.0) as operator:
        await operator.sees(lambda: (operator.value_of(age) or 0.0) < 1.0)
        await cml.strike(fault("silence"))
        await operator.sees(lambda: (operator.value_of(age) or 0.0) > 1.0)


async def test_polling_stands_in_and_fails_too_when_answers_come_too_late(cml: Cml) -> None:
    async with watched(cml) as operator:
        await cml.strike(fault("http", status=502, path="/ws/ui"))
        await cml.strike(CUT)
        await operator.sees(
            lambda: [sample for sample in operator.live.plane.samples if sample.source is SampleSource.REST]
        )
        await cml.strike(STALE[1])
        await operator.reads("poll failed", lambda entry: entry["what"] == "load")
