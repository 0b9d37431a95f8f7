"""Wherever a path takes an id it takes a name."""

import pytest
from msgspec.structs import replace

from lcm.domain.lifecycle import TERMINATED
from support.people import PublicDesk


@pytest.fixture
async def desk() -> PublicDesk:
    return await PublicDesk().open()


async def created(desk: PublicDesk, name: str) -> str:
    answer = await desk.admin.post("/api/workers", {"name": name, "template_name": "small"})
    assert answer.status == 202
    return str(answer.body["id"])


async def test_a_worker_is_named_by_its_name_in_every_route(desk: PublicDesk) -> None:
    worker_id = await created(desk, "ccna")
    assert (await desk.viewer.get("/api/workers/ccna")).body["id"] == worker_id
    for part in ("explain", "timeline", "resources", "labs", "activity", "idle-status"):
        assert (await desk.viewer.get(f"/api/workers/ccna/{part}")).status == 200, part
    assert (await desk.operator.post("/api/workers/ccna/stop")).body["id"] == worker_id


async def test_a_name_is_that_of_the_worker_that_is_not_terminated(desk: PublicDesk) -> None:
    first = await created(desk, "ccna")
    await desk.records.workers.change(first, lambda worker: replace(worker, status=TERMINATED))
    assert (await desk.viewer.get("/api/workers/ccna")).status == 404
    second = await created(desk, "ccna")
    assert (await desk.viewer.get("/api/workers/ccna")).body["id"] == second
    assert (await desk.viewer.get(f"/api/workers/{first}")).body["id"] == first


async def test_an_id_wins_over_a_name(desk: PublicDesk) -> None:
    first = await created(desk, "ccna")
    second = await created(desk, first)  # a name may look like an id
    assert (await desk.viewer.get(f"/api/workers/{first}")).body["id"] == first
    assert second != first


async def test_a_name_that_nothing_has_is_not_found(desk: PublicDesk) -> None:
    answer = await desk.viewer.get("/api/workers/nobody")
    assert (answer.status, answer.kind) == (404, "not-found")
    assert "'nobody'" in answer.body["detail"]


async def test_a_definition_is_named_by_its_name_or_by_name_and_version(desk: PublicDesk) -> None:
    first = await desk.define("branch", version="1.0.0")
    second = await desk.define("branch", version="1.1.0")
    for name, made in (("branch", second), ("branch@1.0.0", first), (first["id"], first)):
        assert (await desk.viewer.get(f"/api/lablet-definitions/{name}")).body["id"] == made["id"]
    for name in ("nothing", "branch@9.0.0"):
        assert (await desk.viewer.get(f"/api/lablet-definitions/{name}")).status == 404


async def test_a_token_is_revoked_by_its_name(desk: PublicDesk) -> None:
    made = await desk.admin.post("/api/tokens", {"name": "ci", "role": "viewer"})
    assert made.status == 201
    assert (await desk.admin.delete("/api/tokens/ci")).status == 204
    assert (await desk.admin.get("/api/tokens")).body["items"] == []
