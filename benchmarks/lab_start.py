"""How long a class waits for its labs, and how soon nothing is left of one that ends: over real TLS sockets.

`lcm up` in a process of its own, with the simulated cloud beside it, brings up many seats at once on several
workers. The floor is the simulator's own time in the same run: a client without records, scheduler or checks
makes the same calls for as many labs at once, waits on CML's WebSocket and asks for nothing twice. LCM's
times are those of its records.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import aiohttp
import msgspec
import uvloop

from lcm.cli.up import Ready
from lcm.simulator.main import SimulationInfo
from report import percentile, report
from support.topologies import TWO_ALPINES

SEATS_OF_A_WORKER = 10
NEEDS = {"cpu": 4.75, "memory_gb": 0, "storage_gb": 0, "nodes": 0}
"""So many fill a worker of 48 CPUs."""
CLASS = 30
"""The seats of the class that ends while the others go on."""
CHANGES_OF_A_WORKER = 4
"""As many as LCM requests of a CML at a time."""
GOAL_SECONDS = 1.0
END_GOAL_SECONDS = 60.0
PATIENCE_SECONDS = 300.0


# The floor.


@dataclass
class BareLab:
    """A lab of the bare client, and how long it took."""

    id: str
    up_seconds: float = 0.0
    gone_seconds: float = 0.0


@dataclass
class BareCml:
    """A client of one CML that does what has to be done, and nothing else."""

    http: aiohttp.ClientSession
    socket: aiohttp.ClientWebSocketResponse
    states: dict[str, str] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CHANGES_OF_A_WORKER))

    async def listen(self) -> None:
        async for message in self.socket:
            event = json.loads(message.data)
            if event["event_type"] == "state_change" and event["element_type"] == "node":
                self.states[event["element_id"]] = event["event"]
                self._changed.set()

    async def bring_up(self, number: int) -> BareLab:
        began = time.perf_counter()
        await self._get("labs?show_all=true")
        imported = await self._change("POST", f"import?title=floor-{number}", data=TWO_ALPINES)
        lab = BareLab(imported["id"])
        await self._get(f"labs/{lab.id}")
        nodes = await self._nodes(lab)
        await self._change("PUT", f"labs/{lab.id}/start")
        await self._until(nodes, "BOOTED")
        await self._get(f"labs/{lab.id}/check_if_converged")
        await self._nodes(lab)
        lab.up_seconds = time.perf_counter() - began
        return lab

    async def remove(self, lab: BareLab) -> None:
        began = time.perf_counter()
        await self._get(f"labs/{lab.id}")
        nodes = await self._nodes(lab)
        await self._change("PUT", f"labs/{lab.id}/stop")
        await self._until(nodes, "STOPPED")
        await self._change("PUT", f"labs/{lab.id}/wipe")
        await self._change("DELETE", f"labs/{lab.id}")
        async with self.http.get(f"/api/v0/labs/{lab.id}") as answer:
            assert answer.status == 404
        lab.gone_seconds = time.perf_counter() - began

    async def _nodes(self, lab: BareLab) -> list[str]:
        path = f"labs/{lab.id}/nodes?data=true&operational=true&exclude_configurations=true"
        return [node["id"] for node in await self._get(path)]

    async def _until(self, nodes: Sequence[str], state: str) -> None:
        while any(self.states.get(node) != state for node in nodes):
            self._changed.clear()
            await self._changed.wait()

    async def _get(self, path: str) -> Any:
        return await _call(self.http, "GET", f"/api/v0/{path}")

    async def _change(self, method: str, path: str, **body: Any) -> Any:
        async with self._places:
            return await _call(self.http, method, f"/api/v0/{path}", **body)


@asynccontextmanager
async def bare_cml(host: str, info: SimulationInfo) -> AsyncIterator[BareCml]:
    url = f"https://{host}:{info.cml_port}"
    login = {"username": info.cml_username, "password": info.cml_password}
    connector = aiohttp.TCPConnector(ssl=False, limit=8)
    async with aiohttp.ClientSession(url, connector=connector) as http, asyncio.TaskGroup() as tasks:
        token = await _call(http, "POST", "/api/v0/authenticate", json=login)
        http.headers["Authorization"] = f"Bearer {token}"
        async with http.ws_connect("/ws/ui") as socket:
            await socket.send_json({"token": token})
            await socket.receive()
            cml = BareCml(http, socket)
            listening = tasks.create_task(cml.listen())
            yield cml
            listening.cancel()


@asynccontextmanager
async def bare_cmls(workers: Sequence[Any], info: SimulationInfo) -> AsyncIterator[list[BareCml]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(bare_cml(each["public_ip"], info)) for each in workers]


async def measure_floor(workers: Sequence[Any], info: SimulationInfo, seats: int, found: "Findings") -> None:
    async with bare_cmls(workers, info) as cmls:
        placed = [cmls[number % len(cmls)] for number in range(seats)]
        labs = await together(cml.bring_up(number) for number, cml in enumerate(placed))
        found.times("floor_up", "floor: until every node has booted", [lab.up_seconds for lab in labs])
        those = list(zip(placed, labs, strict=True))
        await together(cml.remove(lab) for cml, lab in those[:CLASS])
        gone = [lab.gone_seconds for lab in labs[:CLASS]]
        found.times("floor_gone", f"floor: until {CLASS} labs are gone", gone)
        await together(cml.remove(lab) for cml, lab in those[CLASS:])


# LCM.


@dataclass
class Lcm:
    """`lcm up`, and a person at it."""

    ready: Ready
    http: aiohttp.ClientSession
    info: SimulationInfo

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await _call(self.http, method, path, json=body)

    async def add_workers(self, count: int) -> list[Any]:
        """Licensed workers of the largest template, ready for labs."""
        await self.call("PUT", "/api/settings/license", {"token": self.info.license_token})
        for number in range(count):
            body = {"name": f"w{number}", "template_name": "metal", "licensed": True}
            await self.call("POST", "/api/workers", body)

        async def are_ready() -> list[Any] | None:
            workers: list[Any] = (await self.call("GET", "/api/workers"))["items"]
            is_ready = [w["cml_ready"] and w["license"]["status"] == "registered" for w in workers]
            return workers if len(workers) == count and all(is_ready) else None

        ready: list[Any] = await until(are_ready)
        return ready

    async def define(self) -> None:
        body = {"name": "two-hosts", "lab_yaml": TWO_ALPINES, "options": {"stated_needs": NEEDS}}
        await self.call("POST", "/api/lablet-definitions", body)

    async def create_class(self, name: str, seats: int) -> str:
        body = {"definition": "two-hosts", "name": name, "count": seats}
        return str((await self.call("POST", "/api/lablet-sessions/batch", body))["batch"]["id"])

    async def seats(self, batch_id: str) -> list[Any]:
        seats: list[Any] = (await self.call("GET", f"/api/lablet-batches/{batch_id}"))["sessions"]
        return seats

    async def until_all(self, batch_ids: Iterable[str], *statuses: str) -> list[Any]:
        async def are_there() -> list[Any] | None:
            seats = [seat for batch_id in batch_ids for seat in await self.seats(batch_id)]
            failed = [seat["status_reason"] for seat in seats if seat["status"] == "failed"]
            if failed:
                raise SystemExit(f"{len(failed)} sessions failed: {failed[0]}")
            return seats if all(seat["status"] in statuses for seat in seats) else None

        arrived: list[Any] = await until(are_there)
        return arrived

    async def count_labs(self) -> int:
        """On all CML servers, as the simulator knows."""
        workers = await _call(self.http, "GET", f"{self.info.cml_control_url}/workers")
        return sum(worker["lab_count"] for worker in workers)

    async def count_claims(self) -> int:
        return sum(len(worker["sessions"]) for worker in (await self.call("GET", "/api/workers"))["items"])

    def usage(self) -> tuple[float, float]:
        """CPU seconds of the process, and those for which it was runnable but others ran."""
        tasks = Path(f"/proc/{self.ready.pid}").glob("task/*/schedstat")
        parts = [[int(part) for part in stat.read_text().split()[:2]] for stat in tasks]
        return sum(cpu for cpu, _ in parts) / 1e9, sum(waited for _, waited in parts) / 1e9


@asynccontextmanager
async def running_lcm(speed: float, directory: Path) -> AsyncIterator[Lcm]:
    """Without workers and sessions of its own."""
    options = ["--port", "0", "--workers", "0", "--speed", f"{speed:g}", "--json"]
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lcm", "up", *options), stdout=subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SystemExit((directory / "log").read_text())
        ready = msgspec.json.decode(line, type=Ready)
        url = f"http://127.0.0.1:{ready.ports['control_plane']}"
        headers = {"Authorization": f"Bearer {ready.token}"}
        async with aiohttp.ClientSession(url, headers=headers) as http:
            body = await _call(http, "GET", f"{ready.aws_endpoint}/_lcm/simulation")
            info = msgspec.convert(body, SimulationInfo)
            await _call(http, "PATCH", f"{info.cml_control_url}/workers", json={"people": False})
            yield Lcm(ready, http, info)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def measure_class(lcm: Lcm, seats: int, found: "Findings") -> str:
    """Two classes that are due at once; return the one that will end."""
    await lcm.define()
    before, began = lcm.usage(), time.perf_counter()
    batches = [await lcm.create_class("ends", CLASS), await lcm.create_class("goes on", seats - CLASS)]
    sessions = await lcm.until_all(batches, "running")
    seconds = time.perf_counter() - began
    cpu, waited = (now - then for now, then in zip(lcm.usage(), before, strict=True))
    found.times(
        "placed", f"LCM: {seats} seats, due to SCHEDULED", between(sessions, "created_at", "scheduled_at")
    )
    found.times("up", "… SCHEDULED to READY", between(sessions, "scheduled_at", "ready_at"))
    labs = [session["lab"] | {"scheduled_at": session["scheduled_at"]} for session in sessions]
    for name, what, first, last in (
        ("intended", "… SCHEDULED to the import's intent", "scheduled_at", "intent_at"),
        ("imported", "… intent to imported", "intent_at", "imported_at"),
        ("started", "… imported to started", "imported_at", "started_at"),
        ("booted", "… started to booted", "started_at", "booted_at"),
    ):
        found.times(name, what, between(labs, first, last))
    found.figures |= {"cpu_seconds_per_seat": cpu / seats, "queue_share": waited / seconds}
    found.rows.append(("… CPU of all of LCM for each", f"{1e3 * cpu / seats:.0f} ms"))
    found.rows.append(("… it waited for a core", f"{waited / seconds:.0%} of the time"))
    return batches[0]


async def measure_end(lcm: Lcm, batch_id: str, seats: int, found: "Findings") -> None:
    began = time.perf_counter()
    await lcm.call("POST", f"/api/lablet-batches/{batch_id}/end")

    async def are_labs_gone() -> bool:
        return await lcm.count_labs() == seats - CLASS

    async def are_claims_released() -> bool:
        return await lcm.count_claims() == seats - CLASS

    await until(are_labs_gone)
    gone = time.perf_counter() - began
    await until(are_claims_released)
    await lcm.until_all([batch_id], "terminated")
    released = time.perf_counter() - began
    found.figures |= {"end_gone_seconds": gone, "end_released_seconds": released}
    found.rows.append((f"LCM: end of a class of {CLASS} to labs gone", f"{gone:.2f} s"))
    found.rows.append(("… to claims released and all ended", f"{released:.2f} s"))


# Both.


@dataclass
class Findings:
    rows: list[tuple[str, str]] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def times(self, name: str, what: str, seconds: Sequence[float]) -> None:
        found = {"p50": percentile(seconds, 50), "p99": percentile(seconds, 99), "max": max(seconds)}
        self.rows.append((f"{what}, p50 / p99 / max", " / ".join(f"{s:.2f}" for s in found.values()) + " s"))
        self.figures |= {f"{name}_{each}_seconds": value for each, value in found.items()}

    def compare(self, speed: float) -> None:
        figures = self.figures
        for percent in ("p50", "p99"):
            floor = figures[f"floor_up_{percent}_seconds"]
            figures[f"over_{percent}_seconds"] = over = figures[f"up_{percent}_seconds"] - floor
            self.rows.append((f"LCM above the floor, {percent}", f"{over:.2f} s"))
            self.ratios[f"SCHEDULED to READY / floor, {percent}"] = figures[f"up_{percent}_seconds"] / floor
        self.ratios |= {
            "p99 above the floor / 1 s (goal: at most 1)": figures["over_p99_seconds"] / GOAL_SECONDS,
            "end of a class / floor": figures["end_gone_seconds"] / figures["floor_gone_max_seconds"],
            "end of a class, lab time / 60 s (goal: at most 1)": (
                figures["end_released_seconds"] * speed / END_GOAL_SECONDS
            ),
        }


def between(records: Iterable[Mapping[str, Any]], first: str, last: str) -> list[float]:
    """The seconds between two times of each record."""
    return [
        (datetime.fromisoformat(record[last]) - datetime.fromisoformat(record[first])).total_seconds()
        for record in records
    ]


async def together(works: Iterable[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*works))


async def until(check: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (answer := await check()):
            await asyncio.sleep(0.2)
    return answer


async def _call(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> Any:
    async with http.request(method, path, **options) as response:
        body = await response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {body.decode()}")
        return json.loads(body) if body else None


async def measure(arguments: argparse.Namespace, directory: Path) -> Findings:
    found, seats = Findings(), arguments.workers * SEATS_OF_A_WORKER
    async with running_lcm(arguments.speed, directory) as lcm:
        workers = await lcm.add_workers(arguments.workers)
        await measure_floor(workers, lcm.info, seats, found)
        ending = await measure_class(lcm, seats, found)
        await measure_end(lcm, ending, seats, found)
    found.compare(arguments.speed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10, help="each has ten seats")
    parser.add_argument("--speed", type=float, default=1.0, help="how much faster labs boot")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = uvloop.run(measure(arguments, Path(directory)))
    report("lab_start", found.rows, found.ratios, found.figures)


if __name__ == "__main__":
    main()
