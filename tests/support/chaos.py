"""A cloud that lives on while LCM is killed and frozen over it, and what must be true afterwards.

`Site` is the cloud and the data directory, `Life` is one LCM process on them and a person who uses it. The
invariants are functions of the real end state: LCM's records, its simulated instances, and the requests
that were answered with 202.
"""

import json
import os
import signal
import sqlite3
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec

from lcm.domain.launch import MANAGED_BY, MANAGED_BY_TAG, WORKER_ID_TAG
from lcm.domain.lifecycle import (
    PENDING,
    RUNNING,
    STOPPED,
    TERMINATED,
    DesiredStatus,
    WorkerStatus,
    find_transition,
)
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerRecords
from lcm.simulator.listing import InstanceListing, ListedInstance
from support.api import Api, Console, Json, admin_of, console_of
from support.canaries import watched_session
from support.ports import reserve_port
from support.processes import RunningLcm, RunningSimulator, eventually, running_lcm, running_simulator

MUTATING: Final = ("RunInstances", "StartInstances", "StopInstances", "TerminateInstances")
READING: Final = ("DescribeInstances", "DescribeImages")

LEASE_SECONDS: Final = 3
ENVIRONMENT: Final = {
    "LEADER_LEASE_TTL": str(LEASE_SECONDS),
    "RECONCILE_INTERVAL": "3",
    "WATCH_DEBOUNCE_SECONDS": "0.1",
}

NO_ANSWER: Final = (aiohttp.ClientError, OSError)
"""What a client of a process that has just died sees."""


# What must be true, whatever happened before.


@dataclass(frozen=True)
class Acknowledged:
    """A request that was acknowledged with a 202."""

    generation: int
    desired_status: DesiredStatus


@dataclass(frozen=True)
class EndState:
    """LCM's records, the cloud's instances, and the acknowledged requests."""

    records: Sequence[Worker]
    instances: Sequence[ListedInstance]
    acknowledged: Mapping[str, Acknowledged]

    def launched_for(self, worker_id: str) -> list[ListedInstance]:
        return [i for i in self.instances if i.tags.get(WORKER_ID_TAG) == worker_id]

    def alive_for(self, worker_id: str) -> list[ListedInstance]:
        return [instance for instance in self.launched_for(worker_id) if is_alive(instance)]

    @property
    def is_at_rest(self) -> bool:
        return all(is_settled(record, self.alive_for(record.id)) for record in self.records)

    def broken_rules(self) -> list[str]:
        return [f"{rule.__name__}: {case}" for rule in INVARIANTS for case in rule(self)]


def is_alive(instance: ListedInstance) -> bool:
    return instance.state not in ("shutting-down", "terminated")


def is_settled(worker: Worker, alive: Sequence[ListedInstance]) -> bool:
    """Whether nothing is left to do, except to wait for the proof that no instance was launched."""
    states = {instance.state for instance in alive}
    match worker.desired_status:
        case DesiredStatus.RUNNING:
            return worker.status is RUNNING and worker.cml.is_ready and states <= {"running"}
        case DesiredStatus.STOPPED:
            is_never_launched = worker.status is PENDING and worker.launch.intent is None
            return is_never_launched or (worker.status is STOPPED and states <= {"stopped"})
        case DesiredStatus.TERMINATED:
            # A launch intent without a launch: it must be absent for five minutes.
            is_being_proven = worker.status is PENDING and worker.has_unresolved_launch and not alive
            return worker.status is TERMINATED or is_being_proven


def i1_at_most_one_live_instance_per_worker(state: EndState) -> Iterator[str]:
    for worker_id in {instance.tags.get(WORKER_ID_TAG, "") for instance in state.instances}:
        alive = state.alive_for(worker_id)
        if len(alive) > 1:
            yield f"worker {worker_id} has {[instance.id for instance in alive]}"


def i2_records_and_instances_match_one_to_one(state: EndState) -> Iterator[str]:
    holders: dict[str, Worker] = {
        r.instance.id: r for r in state.records if r.status is not TERMINATED and r.instance.id
    }
    for instance in state.instances:
        if is_alive(instance) and instance.tags.get(MANAGED_BY_TAG) == MANAGED_BY:
            holder = holders.get(instance.id)
            if holder is None or holder.id != instance.tags.get(WORKER_ID_TAG):
                yield f"{instance.id} ({instance.state}) is an orphan"
    for record in state.records:
        if record.status in (RUNNING, STOPPED):
            states = [i.state for i in state.instances if i.id == record.instance.id]
            if states != [record.status.value]:
                yield f"{record.name} is {record.status}, its instance {states or 'does not exist'}"


def i4_no_more_launches_than_launch_generations(state: EndState) -> Iterator[str]:
    for record in state.records:
        launched = state.launched_for(record.id)
        if len(launched) > record.launch.generation:
            yield f"{record.name}: {len(launched)} instances in {record.launch.generation} generations"


def i5_every_step_is_a_row_of_the_table(state: EndState) -> Iterator[str]:
    for record in state.records:
        history = record.state_history
        for entry in history:
            source, target = entry.source or entry.target, entry.target
            if source is not target and find_transition(source, target) is None:
                yield f"{record.name}: {source} -> {target}"
        for before, after in pairwise(history):
            if after.source is not before.target:
                yield f"{record.name}: {after.source} follows {before.target}"
        if history[-1].target is not record.status:
            yield f"{record.name} is {record.status}, its timeline ends with {history[-1].target}"


def i11_every_acknowledged_request_is_kept(state: EndState) -> Iterator[str]:
    records = {str(record.id): record for record in state.records}
    for worker_id, request in state.acknowledged.items():
        record = records.get(worker_id)
        if record is None:
            yield f"worker {worker_id} is lost"
        elif record.generation < request.generation:
            yield f"{record.name}: request {request.generation} is lost, the record has {record.generation}"
        elif record.generation == request.generation and record.desired_status is not request.desired_status:
            yield f"{record.name} wants {record.desired_status}, {request.desired_status} was acknowledged"


INVARIANTS: Final[tuple[Callable[[EndState], Iterable[str]], ...]] = (
    i1_at_most_one_live_instance_per_worker,
    i2_records_and_instances_match_one_to_one,
    i4_no_more_launches_than_launch_generations,
    i5_every_step_is_a_row_of_the_table,
    i11_every_acknowledged_request_is_kept,
)


class Witness:
    """Reads the stream of every incarnation: versions have no gap (I12) and never decrease in a crash."""

    def __init__(self) -> None:
        self._last: dict[str, Json] = {}
        self.objections: list[str] = []

    async def follow(self, api: Api) -> None:
        try:
            async with api.session.get("/api/events/stream", timeout=aiohttp.ClientTimeout()) as response:
                async for line in response.content:
                    if line.startswith(b"data: "):
                        self.hear(json.loads(line.removeprefix(b"data: ")))
        except NO_ANSWER:
            return  # killed

    def hear(self, event: Json) -> None:
        if (now := event.get("worker")) is None:
            return
        before = self._last.get(now["id"])
        is_change = "previous_status" in event
        if before is not None and now["version"] <= before["version"]:
            # A change that the snapshot before it showed already; a snapshot itself must not be older.
            self._require(is_change or now["version"] == before["version"], now, "went back")
            return
        if is_change:
            self._require(
                now["version"] == (before["version"] if before else 0) + 1, now, "left a version out"
            )
            was, is_now = event["previous_status"], now["status"]
            is_legal = was in (None, is_now) or find_transition(WorkerStatus(was), WorkerStatus(is_now))
            self._require(bool(is_legal), now, f"came from {was}")
        if before is not None:
            self._require(now["generation"] >= before["generation"], now, "lost a request")
        self._last[now["id"]] = now

    def _require(self, is_true: bool, worker: Json, objection: str) -> None:
        if not is_true:
            self.objections.append(
                f"{worker['name']} at version {worker['version']} ({worker['status']}) {objection}"
            )


# The processes.


@contextmanager
def frozen(*process_ids: int) -> Iterator[None]:
    """Send SIGSTOP, and SIGCONT when the block is left, to the processes that still exist."""
    for process_id in process_ids:
        os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        for process_id in process_ids:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGCONT)


def children_of(process_id: int) -> list[int]:
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    return [_meant_by(int(child)) for child in children]


def _meant_by(process_id: int) -> int:
    """A process that stands for another one (`quick_python`) has a name that says for which."""
    name = Path(f"/proc/{process_id}/comm").read_text()
    return int(name.removeprefix("for ")) if name.startswith("for ") else process_id


class Site:
    """`lcm simulate` and a data directory. LCM comes and goes; acknowledged requests are kept."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.acknowledged: dict[str, Acknowledged] = {}
        self.witness = Witness()
        self.is_proven = True
        """Whether the last test got to its end: then the next one may use this site too."""
        self._simulator = ExitStack()
        self._lcm = ExitStack()
        self._running: RunningLcm | None = None

    def __enter__(self) -> Self:
        port = str(reserve_port())  # another cloud may take the place of this one
        self.simulator: RunningSimulator = self._simulator.enter_context(running_simulator("--port", port))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._lcm.close()
        finally:
            self._simulator.close()

    @property
    def lcm(self) -> RunningLcm:
        """The running one, started if there is none."""
        if self._running is None:
            endpoint = self.simulator.info.aws_endpoint
            arguments = ("--workers", "0", "--aws-endpoint", endpoint, "--data-dir", str(self.data_dir))
            self._running = self._lcm.enter_context(running_lcm(*arguments, **ENVIRONMENT))
        return self._running

    def kill(self) -> None:
        """Kill LCM with SIGKILL."""
        assert self._running is not None
        process, self._running = self._running.process, None
        process.kill()
        process.wait()
        self._lcm.close()

    def kill_simulator(self) -> None:
        """End the simulated cloud and its instances: this site cannot be reused."""
        self.simulator.process.kill()
        self.simulator.process.wait()

    def stack_traces(self) -> list[str]:
        """Unexpected errors in LCM's standard error; read without moving the file's position."""
        assert self._running is not None
        descriptor = self._running.errors.fileno()
        said = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
        return [said] if "Traceback" in said else []

    @asynccontextmanager
    async def life(self) -> AsyncIterator["Life"]:
        """LCM with a person and a witness; the block may kill it."""
        lcm = self.lcm
        key = json.loads((self.data_dir / "keys.json").read_text())["controller"]
        async with (
            admin_of(lcm) as api,
            console_of(self.simulator.info.aws_endpoint) as console,
            watched_session(headers={"X-API-Key": key}) as http,
            TaskGroup() as tasks,
        ):
            watching = tasks.create_task(self.witness.follow(api))
            try:
                yield Life(self, lcm, api, console, http)
            finally:
                watching.cancel()


@dataclass(frozen=True)
class Life:
    """One LCM process, as a person, an operator and the cloud see it."""

    site: Site
    lcm: RunningLcm
    api: Api
    console: Console
    http: aiohttp.ClientSession = field(repr=False)

    # The person.

    async def create(self, name: str) -> Json:
        return self.acknowledge(await self.api.create(name))

    async def act(self, worker: Json, action: str) -> Json:
        return self.acknowledge(await self.api.act(worker, action))

    def acknowledge(self, worker: Json) -> Json:
        request = Acknowledged(worker["generation"], DesiredStatus(worker["desired_status"]))
        known = self.site.acknowledged.get(worker["id"])
        if known is None or known.generation < request.generation:
            self.site.acknowledged[worker["id"]] = request
        return worker

    async def see(self, worker: Json) -> Json:
        return await self.api.get(f"/api/workers/{worker['id']}")

    async def running(self, *names: str) -> list[Json]:
        created = [await self.create(name) for name in names]
        return [await self.api.until(worker, "running", cml_ready=True) for worker in created]

    async def stopped(self, *names: str) -> list[Json]:
        for worker in (workers := await self.running(*names)):
            await self.act(worker, "stop")
        return [await self.api.until(worker, "stopped") for worker in workers]

    # The operator.

    async def health(self) -> Json:
        return await self._get(f"{self.lcm.worker_controller_url}/health")

    async def is_frozen(self) -> bool:
        return bool((await self.health())["frozen"])

    async def sees_everything_twice(self) -> None:
        """Reconcile often enough to show the effect of a single wrong pass."""
        for _ in range(2):
            await self.reconcile_now()

    async def reconcile_now(self, worker: Json | None = None) -> None:
        """`trigger-reconcile`, of one worker or of all."""
        url = f"{self.lcm.worker_controller_url}/admin/trigger-reconcile"
        params = {"worker_id": worker["id"]} if worker else {}
        async with self.http.post(url, params=params) as response:
            assert response.status == 202, await response.text()

    # The cloud.

    async def calls(self, *operations: str, worker: Json | None = None) -> list[Json]:
        """Of these operations, or all that change something; of this worker's instance, if named."""
        made = await self._get(f"{self.site.simulator.info.control_url}/calls")
        return [
            call
            for call in made
            if call["operation"] in (operations or MUTATING)
            and (worker is None or worker["ec2_instance_id"] in call["instance_ids"])
        ]

    async def forget_calls(self) -> None:
        async with self.http.delete(f"{self.site.simulator.info.control_url}/calls") as response:
            assert response.status < 300

    async def instances(self) -> list[ListedInstance]:
        async with self.http.get(f"{self.site.simulator.info.control_url}/instances") as response:
            return msgspec.json.decode(await response.read(), type=InstanceListing).instances

    async def instance_of(self, worker: Json) -> ListedInstance | None:
        found = [i for i in await self.instances() if i.tags.get(WORKER_ID_TAG) == worker["id"]]
        assert len(found) <= 1
        return found[0] if found else None

    async def disturb(self, *operations: str, **fault: Any) -> None:
        for operation in operations:
            await self.console.disturb(operation=operation, **fault)

    async def heal(self) -> None:
        await self.console.heal()

    # The end.

    async def end_state(self) -> EndState:
        url = f"{self.lcm.url}/api/internal/workers"
        async with self.http.get(url, params={"include_terminated": "true"}) as response:
            assert response.status == 200, await response.text()
            records = msgspec.json.decode(await response.read(), type=WorkerRecords).items
        return EndState(records, await self.instances(), self.site.acknowledged)

    async def settles(self) -> EndState:
        """Wait until everything is settled without further requests."""

        async def state_at_rest() -> EndState | None:
            state = await self.end_state()
            return state if state.is_at_rest else None

        try:
            state: EndState = await eventually(state_at_rest)
        except TimeoutError:
            state = await self.end_state()
            late = [r for r in state.records if not is_settled(r, state.alive_for(r.id))]
            unsettled = [f"{r.name} {r.desired_status}: {r.status} ({r.status_reason})" for r in late]
            raise AssertionError(f"still not settled: {unsettled}") from None
        return state

    async def prove(self) -> EndState:
        """Check that all is and stays settled without another effect, every invariant holds, LCM is healthy.

        The last line of every test: only a site that was proven is used again.
        """
        state = await self.settles()
        for objections in (state.broken_rules(), self.site.witness.objections, self.site.stack_traces()):
            assert not objections, objections
        before = await self.calls()
        await eventually(self.is_well)
        await self.sees_everything_twice()
        assert await self.calls() == before, "something was done at EC2 though all was as wanted"
        self.site.is_proven = True
        return state

    async def is_well(self) -> bool:
        health = await self.health()
        return health["is_leader"] and health["status"] == "healthy" and not health["frozen"]

    async def clear(self) -> None:
        """A quiet site without live workers and without earlier calls, to begin with."""
        for worker in (await self.api.get("/api/workers?limit=500"))["items"]:
            await self.act(worker, "delete")
        await self.settles()
        await self.forget_calls()

    async def _get(self, url: str) -> Json:
        async with self.http.get(url) as response:
            return await response.json()


def all_of(checks: Iterable[Callable[[], Awaitable[Any]]]) -> Callable[[], Awaitable[bool]]:
    """For `eventually`: true once all of them are true at once."""
    kept = list(checks)

    async def check() -> bool:
        for one in kept:
            if not await one():
                return False
        return True

    return check


@dataclass(frozen=True)
class OnDisk:
    """The records as a power cut would leave them: read from a copy that no LCM has opened."""

    integrity: str
    records: Sequence[Worker]


def read_copy(database: Path, copy_dir: Path) -> OnDisk:
    """Copies the file with its log, so that reading changes nothing for the next incarnation."""
    for part in database.parent.glob(f"{database.name}*"):
        (copy_dir / part.name).write_bytes(part.read_bytes())
    with closing(sqlite3.connect(copy_dir / database.name)) as db:
        integrity: str = db.execute("PRAGMA integrity_check").fetchone()[0]
        rows = db.execute("SELECT version, body FROM documents WHERE kind = 'worker'").fetchall()
    records = [msgspec.json.decode(body, type=Worker) for _, body in rows]
    assert [record.version for record in records] == [version for version, _ in rows]
    return OnDisk(integrity, records)
