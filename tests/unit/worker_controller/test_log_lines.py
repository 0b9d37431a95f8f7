"""Every line about a worker says which worker, under which epoch, in which trace; both processes alike."""

import json
import random
from collections.abc import Iterator, Mapping

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import assemble
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import LogFormat, configure_logging
from lcm.core.tracing import TraceContext, add_what_is_done, doing
from lcm.domain.errors import Conflict
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, STARTING, STOPPED, TERMINATED
from lcm.domain.worker import Action
from lcm.rest.client import ControlPlaneClient
from support.asgi import request
from support.control_plane import ONE_REGION
from support.core import a_worker
from support.fleet import Fleet
from support.memory_cloud import Moment
from support.virtual_time import VirtualClock

WORKER = WorkerId("5d2f3a52-8f0e-4b3c-9a63-0d9b7c0d4a11")


class Log:
    """What was logged since the last read."""

    def __init__(self, entries: list[EventDict]) -> None:
        self._entries = entries

    def lines(self) -> list[EventDict]:
        seen = list(self._entries)
        self._entries.clear()
        return seen


@pytest.fixture
def log() -> Iterator[Log]:
    with capture_logs(processors=[add_what_is_done]) as entries:
        yield Log(entries)


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_lines_for_people_and_for_machines_say_the_same(log_format: LogFormat) -> None:
    before = structlog.get_config()
    try:
        configure_logging(log_format)
        assert add_what_is_done in structlog.get_config()["processors"]
    finally:
        structlog.configure(**before)


async def test_every_line_of_a_leader_names_its_epoch_and_a_trace(log: Log) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        fleet.cloud.stop(fleet.instance_id(worker))
        await fleet.until(worker, STOPPED)
        await fleet.until(worker, RUNNING)
        await fleet.ask(worker, Action.DELETE)
        await fleet.until(worker, TERMINATED)
    of_the_control_plane = {"worker created", "worker changed"}
    lines = [line for line in log.lines() if line["event"] not in of_the_control_plane]
    assert len(lines) > 8
    for line in lines:
        assert line.get("epoch") == 1, line
        assert len(line["trace_id"]) == 32, line
    about_it = [line for line in lines if line["event"] != "leadership acquired"]
    assert {line["worker_id"] for line in about_it} == {worker.id}


async def test_the_moves_of_one_pass_share_a_trace_and_another_pass_has_another(log: Log) -> None:
    async with Fleet().running() as fleet:
        worker = await fleet.running_worker()
        await fleet.ask(worker, Action.STOP)
        await fleet.until(worker, STOPPED)
    moves = [line for line in log.lines() if line["event"] == "worker status changed"]
    to = {line["status"]: line["trace_id"] for line in moves}
    assert to["starting"] == to["running"]  # one pass went through both
    assert len({to["starting"], to["stopping"], to["stopped"]}) == 3


async def test_a_failure_in_the_middle_is_logged_with_its_worker(log: Log) -> None:
    async with Fleet().running() as fleet:

        async def fail(moment: Moment, operation: str, _: str) -> None:
            if (moment, operation) == ("before", "launch_instance"):
                raise ValueError("a bug")

        fleet.cloud.interfere = fail
        worker = await fleet.create()
        await fleet.clock.sleep(2)
    lines = [line for line in log.lines() if line["event"] in ("reconcile failed", "will retry")]
    assert len(lines) >= 2
    assert {(line["worker_id"], line["epoch"]) for line in lines} == {(worker.id, 1)}
    assert lines[0]["exc_info"]


class InMemory:
    """Carries requests to a control plane in the same loop."""

    def __init__(self) -> None:
        clock, ids, store = VirtualClock(), RandomIds(random.Random(1)), MemoryStore()
        self.parts = assemble(
            store,
            MemoryKv(clock, ids),
            AccessKeys("viewer", "operator", "admin", "controller"),
            clock=clock,
            ids=ids,
            policies=ONE_REGION,
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
        )
        self.store = store
        self.sent: list[Mapping[str, str]] = []

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        self.sent.append(headers)
        return await request(self.parts.app, method, path, headers, body)


async def test_the_control_plane_goes_on_in_the_trace_of_the_controller(log: Log) -> None:
    wire = InMemory()
    worker = a_worker(id=WORKER)
    await wire.parts.app.state.services.control_plane.records.workers.add(worker)
    client = ControlPlaneClient(wire, "controller", "worker-controller", lambda: 1)
    await client.claim_leadership("etcd", 1, "one")
    log.lines()
    with doing(TraceContext(RandomIds(random.Random(2)), {"worker_id": worker.id})) as work:
        moved = await client.update_status(worker, worker.status, "looked at")
        assert moved.version == worker.version + 1
        with pytest.raises(Conflict):
            await client.update_status(worker, STARTING, "too late")
    assert all(headers["traceparent"] == work.traceparent for headers in wire.sent[1:])
    [refusal] = log.lines()  # a mere note is not worth a line
    assert (refusal["event"], refusal["kind"]) == ("request refused", "conflict")
    assert (refusal["worker_id"], refusal["epoch"]) == (worker.id, 1)
    assert (refusal["trace_id"], refusal["caller"]) == (work.trace_id, "worker-controller")


async def test_a_commit_is_logged_in_the_trace_of_its_request(log: Log) -> None:
    wire = InMemory()
    worker = a_worker(id=WORKER)
    await wire.parts.app.state.services.control_plane.records.workers.add(worker)
    log.lines()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"Authorization": "Bearer operator", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    status, _ = await wire.send("POST", f"/api/workers/{worker.id}/stop", headers, None)
    assert status == 202
    [line] = log.lines()
    assert (line["event"], line["desired_status"], line["trace_id"]) == (
        "worker desired status changed",
        "stopped",
        trace,
    )


async def test_a_caller_without_a_trace_gets_one(log: Log) -> None:
    wire = InMemory()
    worker = a_worker(id=WORKER)
    await wire.parts.app.state.services.control_plane.records.workers.add(worker)
    log.lines()
    for action in ("stop", "start"):
        await wire.send("POST", f"/api/workers/{worker.id}/{action}", {"Authorization": "Bearer admin"}, None)
    first, second = [line["trace_id"] for line in log.lines()]
    assert len(first) == 32
    assert first != second


@pytest.mark.parametrize("header", ["X-LCM-Service", "X-LCM-Epoch", "traceparent"])
async def test_what_a_stranger_sends_does_not_get_into_the_log_as_it_is(log: Log, header: str) -> None:
    wire = InMemory()
    status, _ = await wire.send("GET", "/api/internal/workers/x", {"X-API-Key": "controller"}, None)
    assert status == 404
    [plain] = log.lines()
    await wire.send(
        "GET", "/api/internal/workers/x", {"X-API-Key": "controller", header: "forged line"}, None
    )
    assert "forged" not in json.dumps(log.lines())
    assert plain["kind"] == "not-found"
