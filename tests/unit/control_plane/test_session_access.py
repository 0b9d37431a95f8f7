"""People reach the lab of their session at the present address of its worker; nobody else learns of it."""

import dataclasses

import msgspec
import pytest
from msgspec.structs import replace

from lcm.domain.lablet.states import INSTANTIATING, RUNNING, STOPPING, TERMINATED
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import STOPPED, UNKNOWN
from lcm.domain.worker import Worker, WorkerInstance
from support.control_plane import ONE_REGION
from support.lablet_bench import HOST, LabletBench
from support.people import Answer, Person


@pytest.fixture
async def bench() -> LabletBench:
    return await LabletBench().open()


async def access(bench: LabletBench, person: Person | None = None) -> Answer:
    return await (person or bench.operator).get(f"/api/lablet-sessions/{bench.session_id}/access")


async def test_a_session_that_runs_has_an_address_for_each_port(bench: LabletBench) -> None:
    session = await bench.drive(RUNNING)
    answer = await access(bench)
    given = answer.body
    assert session.lab is not None
    [port] = given.pop("ports")
    assert given == {
        "session_id": bench.session_id,
        "status": "running",
        "worker_id": "w1",
        "host": HOST,
        "lab_id": session.lab.lab_id,
        "lab_url": f"https://{HOST}/lab/{session.lab.lab_id}",
        "valid_until": msgspec.to_builtins(session.ends_at),
        "probed_at": msgspec.to_builtins(session.ready_at),
    }
    assert port == {
        "label": "pc1",
        "node": "pc1",
        "node_definition": "alpine",
        "kind": "serial",
        "protocol": "serial",
        "host": HOST,
        "port": session.ports["pc1_serial"],
        "uri": f"telnet://{HOST}:{session.ports['pc1_serial']}",
        "is_reachable": True,
        "username": None,
        "password": None,
    }
    assert answer.headers["cache-control"] == "no-store"


async def test_no_other_answer_shows_ports_or_addresses_of_a_session(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    path = f"/api/lablet-sessions/{bench.session_id}"
    for each in (path, f"{path}/history", "/api/lablet-sessions"):
        assert f"telnet://{HOST}" not in (text := (await bench.operator.get(each)).text.decode())
        assert '"ports":{' not in text


async def test_access_to_the_session_of_another_person_is_not_found(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    refused = await access(bench, bench.viewer)
    assert (refused.status, refused.kind) == (404, "not-found")
    assert (await access(bench, bench.admin)).status == 200


@pytest.mark.parametrize("way", ["waits", "is_prepared", "stops", "has_ended"])
async def test_a_session_without_a_lab_says_what_to_do(bench: LabletBench, way: str) -> None:
    if way == "waits":
        bench.session_id = (await bench.book())["id"]
        kind, advice = "not-ready-yet", "/explain says why"
    elif way == "is_prepared":
        await bench.drive(INSTANTIATING)
        kind, advice = "not-ready-yet", "ask again when it is ready"
    else:
        await bench.drive(RUNNING)
        await bench.end()
        await bench.drive(STOPPING if way == "stops" else TERMINATED)
        kind, advice = "conflict", "create another"
    refused = await access(bench)
    assert (refused.status, refused.kind) == (409, kind)
    assert advice in refused.body["detail"]


async def test_the_address_is_the_one_that_the_worker_has_now(bench: LabletBench) -> None:
    await bench.drive(RUNNING)

    async def with_instance(**fields: str | None) -> Answer:
        def moved(worker: Worker) -> Worker:
            return replace(worker, instance=replace(worker.instance, **fields))

        await bench.change_worker(moved)
        return await access(bench)

    moved = await with_instance(public_ip="198.51.100.7", private_ip="10.9.9.9")
    assert moved.body["host"] == moved.body["ports"][0]["host"] == "198.51.100.7"
    assert (await with_instance(public_ip=None)).body["host"] == "10.9.9.9"
    assert (await with_instance(private_ip=None)).kind == "not-ready-yet"


async def test_the_private_address_is_given_where_people_use_that_network() -> None:
    bench = LabletBench(dataclasses.replace(ONE_REGION, gives_private_ip=True, cml_port=8443))
    await bench.open()
    await bench.drive(RUNNING)
    await bench.change_worker(
        lambda worker: replace(worker, instance=replace(worker.instance, private_ip="10.9.9.9"))
    )
    given = (await access(bench)).body
    assert given["host"] == "10.9.9.9"
    assert given["lab_url"].startswith("https://10.9.9.9:8443/lab/")
    told = (await bench.operator.get("/api/session")).body
    assert told["cml"] == {"uses_private_ip": True, "port": 8443}


async def test_a_worker_that_does_not_run_the_lab_gives_no_access(bench: LabletBench) -> None:
    await bench.drive(RUNNING)
    await bench.change_worker(lambda worker: replace(worker, status=UNKNOWN))
    assert (await access(bench)).status == 200
    await bench.change_worker(lambda worker: replace(worker, status=STOPPED))
    assert "w1 is stopped" in (await access(bench)).body["detail"]
    other = WorkerInstance(id=InstanceId("i-2"), public_ip=HOST)
    await bench.change_worker(lambda worker: replace(worker, status=UNKNOWN, instance=other))
    assert (await access(bench)).kind == "not-ready-yet"
