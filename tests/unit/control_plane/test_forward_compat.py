"""A8: control planes of two versions share the records; the older one keeps what it does not understand."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lcm.control_plane.access.credentials import TOKEN, Credentials
from lcm.control_plane.access.roles import Role
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.license_worker import DEBT, settle_debt
from lcm.control_plane.records.templates import KIND as TEMPLATE
from lcm.control_plane.records.templates import Templates
from lcm.control_plane.records.workers import KIND, Workers
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Store
from lcm.domain.license import License, LicenseStatus
from lcm.domain.lifecycle import RUNNING, STOPPING
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import HistoryEntry, Worker
from support.core import a_worker
from support.virtual_time import VirtualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Shared:
    """A store to which a later version writes, and workers of this version that read it."""

    def __init__(self, worker: Worker) -> None:
        self.store = MemoryStore()
        self.workers = Workers(self.store)
        self.worker = worker

    async def write_as_later_version(self, **parts: Any) -> None:
        record = {**msgspec.to_builtins(self.worker), "invented_later": {"by": "ann"}, **parts}
        await self.store.insert(Document(KIND, self.worker.id, 1, msgspec.json.encode(record)))

    async def change(self, **fields: Any) -> dict[str, Any]:
        """The record as it is stored after this version changed it."""
        await self.workers.change(self.worker.id, lambda known: replace(known, **fields))
        document = await self.store.get(KIND, self.worker.id)
        assert document is not None
        stored: dict[str, Any] = msgspec.json.decode(document.body)
        return stored


@pytest.fixture
def shared() -> Shared:
    arrived = HistoryEntry(at=NOW, source=None, target=RUNNING, reason="EC2 reports running", by="c")
    return Shared(a_worker(status=RUNNING, state_history=(arrived,)))


async def test_a_field_that_is_not_understood_outlives_every_change(shared: Shared) -> None:
    await shared.write_as_later_version()
    for reason in ("first", "second"):
        stored = await shared.change(status_reason=reason)
        assert stored["invented_later"] == {"by": "ann"}
        assert stored["status_reason"] == reason
    assert (await shared.workers.get(shared.worker.id)).version == 3


async def test_what_a_later_version_wrote_after_this_one_is_read_and_kept(shared: Shared) -> None:
    await shared.workers.add(shared.worker)
    for reason in ("first", "second"):
        stored = await shared.change(status_reason=reason)
    body = msgspec.json.encode({**stored, "version": 4, "invented_later": 1, "status_reason": "later"})
    await shared.store.replace(Document(KIND, shared.worker.id, 4, body))
    assert (await shared.workers.get(shared.worker.id)).status_reason == "later"
    stored = await shared.change(tags={"course": "ccna"})
    assert (stored["invented_later"], stored["status_reason"]) == (1, "later")


async def test_a_part_that_is_not_changed_stays_as_a_later_version_wrote_it(shared: Shared) -> None:
    license = {**msgspec.to_builtins(License()), "pool": "east"}
    await shared.write_as_later_version(license=license)
    assert (await shared.change(status_reason="other"))["license"] == license


@pytest.mark.parametrize(
    ("part", "field", "known"),
    [
        ("cml", "health", {"valid": True}),
        ("cml", "license", {"registration_status": "COMPLETED"}),
        ("activity", "recent_events", [{"category": "start_lab", "at": "2026-01-01T00:00:00Z"}]),
        (None, "declared_capacity", {"cpu": 4.0, "memory_gb": 16.0, "storage_gb": 100.0, "nodes": 20.0}),
    ],
)
async def test_a_value_with_a_later_field_can_be_read_and_is_kept(
    shared: Shared, part: str | None, field: str, known: dict[str, Any] | list[dict[str, Any]]
) -> None:
    entries = known if isinstance(known, list) else [known]
    later = [{**entry, "invented_later": 1} for entry in entries]
    value = later if isinstance(known, list) else later[0]
    await shared.write_as_later_version(**({part: {field: value}} if part else {field: value}))
    stored = await shared.change(status_reason="other")
    assert (stored[part] if part else stored)[field] == value


async def test_a_later_field_of_a_part_outlives_a_change_of_that_part(shared: Shared) -> None:
    known = msgspec.json.decode(msgspec.json.encode(shared.worker.cml))
    later = {**known, "health": {"valid": True, "score": 7}, "disk": "full"}
    await shared.write_as_later_version(cml=later)
    stored = await shared.change(cml=replace((await shared.workers.get(shared.worker.id)).cml, version="2.9"))
    assert stored["cml"] == {**later, "version": "2.9"}


async def test_a_value_that_is_changed_is_as_this_version_writes_it(shared: Shared) -> None:
    await shared.write_as_later_version(license={**msgspec.to_builtins(License()), "pool": "east"})
    registered = License(status=LicenseStatus.REGISTERED)
    assert (await shared.change(license=registered))["license"] == msgspec.to_builtins(registered)


async def test_entries_of_a_list_keep_what_a_later_version_wrote_into_them(shared: Shared) -> None:
    [entry] = msgspec.to_builtins(shared.worker)["state_history"]
    await shared.write_as_later_version(state_history=[{**entry, "trace_id": "abc"}])
    stopped = HistoryEntry(at=NOW, source=RUNNING, target=STOPPING, reason="people", by="c")
    stored = await shared.change(status=STOPPING, state_history=(*shared.worker.state_history, stopped))
    assert stored["state_history"] == [{**entry, "trace_id": "abc"}, msgspec.to_builtins(stopped)]


async def test_what_this_version_removes_is_removed(shared: Shared) -> None:
    shared.worker = replace(shared.worker, tags={"team": "blue", "room": "4"})
    await shared.write_as_later_version()
    assert (await shared.change(tags={"team": "blue"}))["tags"] == {"team": "blue"}


async def test_a_record_of_this_version_is_written_as_ever(shared: Shared) -> None:
    await shared.workers.add(shared.worker)
    changed = await shared.workers.change(shared.worker.id, lambda known: replace(known, status_reason="x"))
    document = await shared.store.get(KIND, shared.worker.id)
    assert document is not None
    assert document.body == msgspec.json.encode(changed)


async def test_a_debt_keeps_its_later_fields(plane: ControlPlane) -> None:
    debt = {"worker_id": "w", "worker_name": "lab", "reason": "gone", "since": NOW, "invented_later": 1}
    await plane.records.store.insert(Document(DEBT, "w", 1, msgspec.json.encode(debt)))
    await settle_debt(plane.records, "w", by="ann")
    assert await later_field_of(plane.records.store, DEBT, "w") == 1


async def test_a_token_keeps_its_later_fields_when_it_is_used() -> None:
    store = MemoryStore()
    tokens = Credentials(store, VirtualClock(), TOKEN)
    secret, credential = await tokens.issue(name="ci", role=Role.VIEWER, by="ann", expires_at=None)
    later = {**msgspec.to_builtins(credential), "invented_later": 1}
    await store.replace(Document(TOKEN, credential.id, 2, msgspec.json.encode(later)))
    await tokens.find(secret)
    await tokens.record_use()
    assert (await tokens.list_all())[0].last_used_at is not None
    assert await later_field_of(store, TOKEN, credential.id) == 1


async def later_field_of(store: Store, kind: str, document_id: str) -> Any:
    document = await store.get(kind, document_id)
    assert document is not None
    return msgspec.json.decode(document.body)["invented_later"]


async def test_a_template_that_a_later_version_wrote_is_read_and_keeps_its_fields() -> None:
    store = MemoryStore()
    templates = Templates(store)
    size = WorkerTemplate(
        name="small",
        description="",
        instance_type="m5.large",
        cpu=2,
        memory_gb=8,
        disk_gb=50,
        max_nodes=5,
        usd_per_hour=0.1,
    )
    seeded = {**msgspec.to_builtins(size), "gpu": 1}
    body = msgspec.json.encode({"seeded": seeded, "switched": False, "invented_later": True})
    await store.insert(Document(TEMPLATE, "small", 1, body))
    assert (await templates.get("small")).enabled is False
    await templates.switch("small", enabled=True)
    await templates.seed({"worker_templates": [msgspec.to_builtins(size)]})
    document = await store.get(TEMPLATE, "small")
    assert document is not None
    stored = msgspec.json.decode(document.body)
    assert (stored["switched"], stored["invented_later"], stored["seeded"]["gpu"]) == (True, True, 1)
