"""The simulated ports of live monitoring, and a controller's monitoring over them."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from lcm.cml.connection import JSON, CmlAnswer, OnPiece
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlSessions
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.domain.errors import Unreachable
from lcm.domain.launch import InstanceId
from lcm.rest.client import ControlPlaneClient
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.service import LiveMonitoring, assemble_monitoring
from lcm.worker_controller.ports import InstanceMetrics, WebSocket, WebSocketListener
from simulation.world.knobs import Knobs
from simulation.world.live_fleet import LiveFleet, LiveSocket, Refusal, Wire
from simulation.world.ports import SimulatedPort
from support.memory_live import delivered

if TYPE_CHECKING:
    from simulation.world.processes import ControllerProcess

LOGIN: Final = "/api/v0/authenticate"
TELEMETRY_EVENTS: Final = "/api/v0/telemetry/events"


def config_of(knobs: Knobs) -> MonitoringConfig:
    """As installed, except intervals that only cost time here."""
    pace = knobs.statistics_seconds
    return MonitoringConfig(
        report_interval=60.0,
        bulk_interval=min(pace, 25.0),
        sweep_seconds=pace / 5,
        sweep_slices=1,
        poll_interval=6 * pace,
        health_timeout=6 * pace,
        ping_after=2 * pace,
    )


class _LivePort(SimulatedPort):
    """A port to the CML servers."""

    error = Unreachable
    _process: "ControllerProcess"

    @property
    def _fleet(self) -> LiveFleet:
        assert self._world.live is not None
        return self._world.live


class SimulatedWebSockets(_LivePort):
    """The live feeds."""

    name = "ws"

    async def connect(self, host: str, pinned_sha256: str | None, listener: WebSocketListener) -> WebSocket:
        opened: list[LiveSocket] = []

        async def open_socket() -> WebSocket:
            server = self._fleet.server_at(host)
            server.connects.append(server.clock.monotonic())
            await server.check_reachable(pinned_sha256)
            if server.refuses_sockets:
                raise Unreachable("live feed: answered 502")
            socket = LiveSocket(server, listener, Wire(self._process))
            server.sockets[socket] = None
            opened.append(socket)
            return socket

        try:
            return await self._read("connect", self._fleet.worker_at(host), open_socket)
        except BaseException:
            for socket in opened:  # the caller is gone
                socket.close()
            raise


class SimulatedCmlApi(_LivePort):
    """The REST API of a CML server."""

    name = "cml"

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        async def answer() -> CmlAnswer:
            server = self._fleet.server_at(host)
            await server.check_reachable(pinned_sha256)
            if path == LOGIN:
                self._world.login_reaches(server.instance)
            answer = server.answer(method, path, token, body)
            if path == TELEMETRY_EVENTS and answer.status == 200:
                server.telemetry_read_at = server.clock.monotonic()
            if path == LOGIN and answer.status in (401, 403):
                tried = msgspec.json.decode(body or b"{}").get("password", "")
                server.refusals.append(Refusal(server.clock.monotonic(), self._process.leadership_id, tried))
            in_whole_seconds = server.wall_time.replace(microsecond=0)
            whole = CmlAnswer(answer.body, server.certificate_sha256, answer.status, in_whole_seconds)
            return delivered(whole, on_piece)

        return await self._read(f"{method} {path}", self._fleet.worker_at(host), answer)


class SimulatedMetrics(_LivePort):
    """CloudWatch."""

    name = "cloudwatch"

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[InstanceId]
    ) -> Mapping[InstanceId, InstanceMetrics]:
        async def measure() -> Mapping[InstanceId, InstanceMetrics]:
            running = [id_ for id_ in instance_ids if self._world.cloud.instances[id_].state == "running"]
            return {instance_id: InstanceMetrics(cpu_utilization=5.0) for instance_id in running}

        return await self._read("get_instance_metrics", "", measure)


def simulated_monitoring(
    process: "ControllerProcess", control_plane: ControlPlaneClient, clock: Clock, health: Health
) -> LiveMonitoring:
    """The real monitoring over these ports."""
    return assemble_monitoring(
        config_of(process.world.knobs),
        control_plane=control_plane,
        websockets=SimulatedWebSockets(process),
        sessions=CmlSessions(SimulatedCmlApi(process), Credentials("admin", "secret"), control_plane, clock),
        cloud_metrics=SimulatedMetrics(process),
        clock=clock,
        ids=process.world.ids,
        chance=Random(f"live/{process.world.faults.seed}/{process.instance_id}"),
        health=health,
    )
