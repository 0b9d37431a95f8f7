"""Two resource schedulers as processes, each behind a gate, with one control plane on a real etcd.

A gate passes bytes between a scheduler and the control plane. It can hold a request, so that a test decides
when the request of a stopped process arrives.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from lcm.core.timeouts import timeout
from lcm.domain.lablet.session import LabletSession
from lcm.domain.worker import Worker
from lcm.rest.lablets import LabletSessionRecords
from lcm.rest.schemas import API_KEY_HEADER, EPOCH_HEADER, PROBLEM_TYPE_PREFIX, SERVICE_HEADER
from support.api import Api, Json, person
from support.booking import book
from support.canaries import watched_session
from support.etcd import etcd_cluster
from support.ha import KEY, LEASE_SECONDS, LcmProcess
from support.patience import PATIENCE_SECONDS
from support.ports import reserve_port
from support.processes import eventually

NAMES: Final = ("eva", "tom")
SCHEDULE: Final = b"POST /api/internal/lablet-sessions/schedule"


class Gate:
    """Passes connections on to the control plane; holds the first placement when it is told to."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._must_hold = False
        self.held = asyncio.Event()
        """A placement has arrived and is not passed on."""
        self._opened = asyncio.Event()
        self.answers: list[bytes] = []
        """What the control plane answered to the held placement."""
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    def hold_the_next_placement(self) -> None:
        self._must_hold = True

    def open(self) -> None:
        self._opened.set()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator["Gate"]:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._opened.set()
            for writer in self._writers:
                writer.close()
            for writer in self._writers:
                with suppress(ConnectionError):
                    await writer.wait_closed()

    async def _pass(self, scheduler: asyncio.StreamReader, to_scheduler: asyncio.StreamWriter) -> None:
        try:
            plane, to_plane = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_scheduler.close()
            return
        self._writers += [to_scheduler, to_plane]
        watched: list[bytes] = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._requests(scheduler, to_plane, watched))
            tasks.create_task(self._answers(plane, to_scheduler, watched))

    async def _requests(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, watched: list[bytes]
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if self._must_hold and SCHEDULE in data:
                    self._must_hold = False
                    self.held.set()
                    await self._opened.wait()
                    watched.append(data)
                target.write(data)
                await target.drain()
        target.close()

    async def _answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, watched: list[bytes]
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if watched:
                    self.answers.append(data)
                target.write(data)
                await target.drain()
        target.close()


@dataclass(frozen=True)
class Schedulers:
    """The two, the control plane and a person at it."""

    plane: LcmProcess
    processes: dict[str, LcmProcess]
    gates: dict[str, Gate]
    api: Api
    http: aiohttp.ClientSession = field(repr=False)

    # The schedulers.

    async def health(self, name: str) -> Json:
        """The health of a scheduler; None if it does not answer."""
        try:
            async with timeout(1), self.http.get(f"{self.processes[name].url}/health") as response:
                return await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def lead_of(self, name: str) -> Json:
        health = await self.health(name)
        return health if health is not None and health["is_leader"] and health["epoch"] else None

    async def leader(self) -> Json:
        for name in NAMES:
            if lead := await self.lead_of(name):
                return lead
        return None

    async def wait_for_a_pair(self) -> tuple[str, str, int]:
        """The leader, the other that stands by, and the leader's epoch."""

        async def is_a_pair() -> tuple[str, str, int] | None:
            lead = await self.leader()
            if lead is None:
                return None
            other = next(name for name in NAMES if name != lead["instance_id"])
            health = await self.health(other)
            is_standby = health is not None and not health["is_leader"] and not health["frozen"]
            return (lead["instance_id"], other, lead["epoch"]) if is_standby else None

        found: tuple[str, str, int] = await eventually(is_a_pair)
        return found

    async def wait_until_leading(self, name: str) -> int:
        return int((await eventually(partial(self.lead_of, name)))["epoch"])

    async def wait_until_standby(self, name: str) -> None:
        async def stands_by() -> bool:
            health = await self.health(name)
            return health is not None and not health["is_leader"]

        await eventually(stands_by)

    # The person.

    async def book(self, definition: Json, count: int = 1) -> list[str]:
        """Sessions as soon as possible."""
        return [str((await book(self.api, definition))["id"]) for _ in range(count)]

    async def wait_until_placed_or_explained(self, count: int) -> list[LabletSession]:
        async def are_settled() -> list[LabletSession] | None:
            found = await self.sessions()
            settled = [each for each in found if each.worker_id or each.waits_for]
            return found if len(settled) == count else None

        found: list[LabletSession] = await eventually(are_settled)
        return found

    async def wait_until_scheduled(self, sessions: Sequence[str]) -> list[LabletSession]:
        async def are_scheduled() -> list[LabletSession] | None:
            found = [session for session in await self.sessions() if session.id in sessions]
            return found if all(session.worker_id for session in found) else None

        placed: list[LabletSession] = await eventually(are_scheduled)
        assert len(placed) == len(sessions)
        return placed

    @staticmethod
    async def answer_of(gate: Gate) -> bytes:
        """What the control plane answers to the placement that was held."""

        async def is_complete() -> bytes | None:
            answer = b"".join(gate.answers)
            return answer if b"}" in answer else None

        answer: bytes = await eventually(is_complete)
        return answer

    # The records.

    async def place_with(self, epoch: int, session_id: str, worker_id: str) -> tuple[int, str]:
        """What a scheduler that does not know better would send."""
        orders = {"orders": [{"session_id": session_id, "worker_id": worker_id, "attempt": 2}]}
        headers = {SERVICE_HEADER: "resource-scheduler", EPOCH_HEADER: str(epoch)}
        status, body = await self.internal("POST", "/lablet-sessions/schedule", orders, **headers)
        return status, json.loads(body).get("type", "").removeprefix(PROBLEM_TYPE_PREFIX)

    async def internal(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        url = f"{self.plane.url}/api/internal{path}"
        given = {API_KEY_HEADER: KEY, SERVICE_HEADER: "worker-controller", **headers}
        async with self.http.request(method, url, json=body, headers=given) as response:
            return response.status, await response.read()

    async def sessions(self) -> list[LabletSession]:
        _, body = await self.internal("GET", "/lablet-sessions")
        return msgspec.json.decode(body, type=LabletSessionRecords).items

    async def worker(self, worker_id: str) -> Worker:
        _, body = await self.internal("GET", f"/workers/{worker_id}")
        return msgspec.json.decode(body, type=Worker)

    async def add_running_worker(self, name: str) -> str:
        """A worker of the largest template whose CML answers, as its controller would report it."""
        worker = await self.api.create(name, "metal")
        claim = {"service": "worker-controller", "cluster_id": "x", "revision": 1, "instance_id": "ada"}
        _, body = await self.internal("POST", "/leadership", claim)
        epoch = {EPOCH_HEADER: str(json.loads(body)["epoch"])}
        path = f"/workers/{worker['id']}"
        for version, status in enumerate(("provisioning", "starting", "running"), start=1):
            report = {"status": status, "reason": "test", "expected_version": version}
            assert (await self.internal("POST", f"{path}/status", report, **epoch))[0] == 200
        ready = {"ready": True, "version": "2.9.0", "certificate_sha256": None}
        assert (await self.internal("POST", f"{path}/cml-data", ready, **epoch))[0] == 200
        return str(worker["id"])

    async def assert_placed_once(self, workers: Sequence[str]) -> None:
        """Every session with a worker has one claim, there; no worker more than it has, no port twice."""
        records = [await self.worker(worker_id) for worker_id in workers]
        held = Counter(claim.session_id for worker in records for claim in worker.claims)
        for session in await self.sessions():
            if session.worker_id is None:
                continue
            assert held.pop(session.id, 0) == 1, session
            [holder] = [w for w in records if any(c.session_id == session.id for c in w.claims)]
            assert holder.id == session.worker_id
        assert not held
        for worker in records:
            assert worker.declared_capacity is not None
            assert worker.allocated_capacity.cpu <= worker.declared_capacity.cpu
            assert worker.allocated_capacity.memory_gb <= worker.declared_capacity.memory_gb
            ports = [port for claim in worker.claims for port in claim.ports.values()]
            assert len(ports) == len(set(ports))


@asynccontextmanager
async def running_schedulers(directory: Path) -> AsyncIterator[Schedulers]:
    region = {"region": "us-east-1", "security_group_ids": ["sg-1"], "subnet_id": "subnet-1"}
    regions = directory / "regions.yaml"
    regions.write_text(yaml.safe_dump({"aws_region_configs": {"us-east-1": region}}))
    async with AsyncExitStack() as gates_open:
        with ExitStack() as stack:
            etcd = stack.enter_context(etcd_cluster())
            shared = {"ETCD_ENDPOINTS": etcd.endpoints[0], "CONTROL_PLANE_API_KEY": KEY}
            data = {"REGIONS_CONFIG_PATH": str(regions), "LCM_DATA_DIR": str(directory / "data")}
            plane = LcmProcess("control plane", ("control-plane",), {**shared, **data}, port=reserve_port())
            gates = {name: await gates_open.enter_async_context(Gate(plane.port).passing()) for name in NAMES}
            lease = {
                "LEADER_LEASE_TTL": str(LEASE_SECONDS),
                "ETCD_CALL_TIMEOUT_SECONDS": f"{LEASE_SECONDS * 0.25:g}",
            }
            processes = {
                name: LcmProcess(
                    name,
                    ("resource-scheduler",),
                    {
                        **shared,
                        **lease,
                        "RESOURCE_SCHEDULER_INSTANCE_ID": name,
                        "CONTROL_PLANE_API_URL": f"http://127.0.0.1:{gates[name].port}",
                    },
                )
                for name in NAMES
            }
            for process in (plane, *processes.values()):
                stack.callback(process.forget)
                process.start()
                process.wait_until_answering()
            token = json.loads((directory / "data" / "keys.json").read_text())["admin"]
            async with person(plane.url, token) as api, watched_session() as http:
                yield Schedulers(plane, processes, gates, api, http)


async def wait_for(event: asyncio.Event) -> None:
    async with timeout(PATIENCE_SECONDS):
        await event.wait()
