"""LCM with every controller as a process of its own, on a real etcd, and classes on its simulated workers."""

import json
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from lcm.domain.lablet.marker import read_title
from lcm.rest.lablets import LabletSessionRecords
from lcm.rest.schemas import API_KEY_HEADER, SERVICE_HEADER
from support.api import Api, Json, person
from support.canaries import suite_canaries, watched_session
from support.cml_judge import CmlJudge, JudgedLab, cml_judge
from support.etcd import etcd_cluster
from support.ha import KEY, LcmProcess, environment_of
from support.processes import RunningSimulator, eventually, running_simulator
from support.topologies import ROUTER_AND_HOST

CONTROLLERS: Final = ("worker-controller", "resource-scheduler", "lablet-controller")
METAL_CPUS: Final = 48
IMPORT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class School:
    """The processes, a person at the control plane, and a judge at each CML."""

    simulator: RunningSimulator
    plane: LcmProcess
    controllers: Mapping[str, LcmProcess]
    api: Api
    token: str = field(repr=False)
    """Of the person, an admin."""
    http: aiohttp.ClientSession = field(repr=False)
    stack: ExitStack = field(repr=False)
    judges: dict[str, CmlJudge] = field(default_factory=dict)
    """By the id of the worker."""

    # Workers.

    async def add_workers(self, count: int) -> list[Json]:
        """Licensed workers that are ready, each with a judge."""
        token = self.simulator.info.license_token
        suite_canaries.know("license token", token)
        status, answer = await self.api.call("PUT", "/api/settings/license", {"token": token})
        assert status == 200, answer
        new = [{"name": f"w{number}", "template_name": "metal", "licensed": True} for number in range(count)]
        created = [await self.api.accepted("POST", "/api/workers", body) for body in new]
        workers = [await eventually(partial(self._ready, worker["id"])) for worker in created]
        info = self.simulator.info
        for worker in workers:
            judge = cml_judge(worker["public_ip"], info.cml_port, info.cml_username, info.cml_password)
            self.judges[worker["id"]] = self.stack.enter_context(judge)
        return workers

    async def _ready(self, worker_id: str) -> Json:
        worker = await self.api.get(f"/api/workers/{worker_id}")
        is_ready = worker["cml_ready"] and worker["license"]["status"] == "registered"
        return worker if is_ready else None

    async def workers(self) -> list[Json]:
        workers: list[Json] = (await self.api.get("/api/workers"))["items"]
        return workers

    # Classes.

    async def create_class(self, seats: int, workers: int) -> Json:
        """A class whose seats need all of these workers."""
        name = await self.define(seats, workers)
        body = {"definition": name, "name": "CCNA", "count": seats}
        return (await self.api.accepted("POST", "/api/lablet-sessions/batch", body))["batch"]

    async def define(self, seats: int, workers: int) -> str:
        """A definition of which so many seats need all of these workers; return its name."""
        needs = {"cpu": METAL_CPUS // -(-seats // workers), "memory_gb": 0, "storage_gb": 0, "nodes": 0}
        definition = {
            "name": "router-and-host",
            "lab_yaml": ROUTER_AND_HOST,
            "options": {"stated_needs": needs},
        }
        status, answer = await self.api.call("POST", "/api/lablet-definitions", definition)
        assert status == 201, answer
        return str(definition["name"])

    async def seats(self, batch: Json) -> list[Json]:
        """The sessions of a class, whatever became of them."""
        seats: list[Json] = (await self.api.get(f"/api/lablet-batches/{batch['id']}"))["sessions"]
        return seats

    async def seats_in(self, batch: Json, *statuses: str, within_seconds: float) -> list[Json]:
        """The sessions of a class when each has one of these statuses."""

        async def have_arrived() -> list[Json] | None:
            seats = await self.seats(batch)
            return seats if all(seat["status"] in statuses for seat in seats) else None

        arrived: list[Json] = await eventually(have_arrived, within_seconds=within_seconds)
        return arrived

    async def granted_ports(self) -> dict[str, dict[str, int]]:
        """The ports of every session, as the controllers are told."""
        url = f"{self.plane.url}/api/internal/lablet-sessions"
        headers = {API_KEY_HEADER: KEY, SERVICE_HEADER: "lablet-controller"}
        async with self.http.get(url, headers=headers) as answer:
            records = msgspec.json.decode(await answer.read(), type=LabletSessionRecords)
        return {session.id: session.ports for session in records.items}

    # What is on the CML servers.

    async def labs_of_sessions(self) -> dict[str, int]:
        """How many labs with a title of LCM each worker has at this moment, as the simulator knows."""
        counts: dict[str, int] = {}
        for worker in await self.workers():
            url = f"{self.simulator.info.cml_control_url}/workers/{worker['ec2_instance_id']}"
            async with self.http.get(url) as answer:
                labs = (await answer.json())["labs"]
            counts[worker["id"]] = sum(read_title(lab["title"]) is not None for lab in labs)
        return counts

    def judged(self) -> dict[str, dict[str, JudgedLab]]:
        """Every lab by worker and id."""
        return {worker_id: judge.labs() for worker_id, judge in self.judges.items()}

    async def disturb(self, worker: Json, **fault: Any) -> None:
        """Inject a fault into the CML of one worker."""
        url = f"{self.simulator.info.cml_control_url}/faults"
        body = {"worker": worker["ec2_instance_id"], **fault}
        async with self.http.post(url, json=body) as answer:
            assert answer.status == 204, await answer.text()

    async def heal(self) -> None:
        async with self.http.delete(f"{self.simulator.info.cml_control_url}/faults") as answer:
            assert answer.status == 204

    # The lablet controller.

    def kill_lablet_controller(self) -> None:
        self.controllers["lablet-controller"].end(signal.SIGKILL)

    def start_lablet_controller(self) -> None:
        controller = self.controllers["lablet-controller"]
        controller.start()
        controller.wait_until_answering()


@asynccontextmanager
async def running_school(directory: Path) -> AsyncIterator[School]:
    with ExitStack() as stack:
        etcd = stack.enter_context(etcd_cluster())
        simulator = stack.enter_context(running_simulator("--no-people"))
        environment = environment_of(directory, etcd, simulator)
        plane = LcmProcess("control plane", ("control-plane",), environment)
        _run(stack, [plane])
        own = {
            "AWS_ACCESS_KEY_ID": "simulated",
            "CONTROL_PLANE_API_URL": plane.url,
            "CML_LAB_TIMEOUT": f"{IMPORT_SECONDS:g}",
        }
        controllers = {name: LcmProcess(name, (name,), {**environment, **own}) for name in CONTROLLERS}
        _run(stack, controllers.values())
        token = json.loads((directory / "data" / "keys.json").read_text())["admin"]
        async with person(plane.url, token) as api, watched_session() as http:
            yield School(simulator, plane, controllers, api, token, http, stack)


def _run(stack: ExitStack, processes: Iterable[LcmProcess]) -> None:
    for process in processes:
        stack.callback(process.forget)
        stack.callback(_show, process)
        process.start()
    for process in processes:
        process.wait_until_answering()


def _show(process: LcmProcess) -> None:
    print(f"--- {process.name}\n{process.said()}", file=sys.stderr)
