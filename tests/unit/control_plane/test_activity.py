"""Everything that happened in the fleet, read from the logs that own it: on virtual time."""

from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.access.roles import Principal, Role
from lcm.control_plane.access.security_log import AuditedStore, SecurityLog, audit_request, one_request
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.queries.activity import ActivityFilter, activity_page
from lcm.control_plane.records.timelines import Timelines
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import PROVISIONING
from lcm.domain.scaling import AuditEvent
from lcm.domain.worker import Worker, extend_history, new_worker
from lcm.rest.activity import ActivityEntry, ActivityKind, ActivityPage
from support.control_plane import control_plane_over
from support.virtual_time import VirtualClock

VIEWER, OPERATOR, ADMIN = (Principal(f"key:{role.label}", role.label, role) for role in Role)


class Fleet:
    """A control plane whose requests of people are audited."""

    def __init__(self) -> None:
        self.clock, ids = VirtualClock(), RandomIds(Random(1))
        store = AuditedStore(MemoryStore(), self.clock, ids)
        self.log = SecurityLog(store, self.clock, ids)
        self.plane: ControlPlane = control_plane_over(store, clock=self.clock, ids=ids)

    async def add(self, name: str, by: str = "ann") -> Worker:
        with one_request():
            audit_request("POST /api/workers", "192.0.2.1", Principal(f"key:{by}", by, Role.ADMIN))
            worker = new_worker(
                worker_id=WorkerId(f"id-of-{name}"),
                name=name,
                template_name="small",
                aws_region="us-east-1",
                tags={},
                by=by,
                now=self.clock.now(),
            )
            return await self.plane.records.workers.add(worker)

    async def scale(self, reason: str, worker_id: str | None = None) -> None:
        await self.plane.records.audit.record(
            AuditEvent.PROVISIONED, by="worker-controller", reason=reason, worker_id=worker_id
        )

    async def define(self, definition_id: str) -> None:
        await self.plane.records.lablet_audit.note(
            LabletEvent.DEFINITION_CREATED, by="ann", reason="new", definition_id=definition_id
        )

    async def page(
        self, person: Principal = ADMIN, before: str | None = None, limit: int = 100, **wanted: Any
    ) -> ActivityPage:
        max_read = wanted.pop("max_read", 5_000)
        return await activity_page(
            self.plane.records,
            self.plane.caches,
            self.log,
            person,
            ActivityFilter(**wanted),
            before=before,
            limit=limit,
            max_read=max_read,
        )

    async def all_of(self, person: Principal = ADMIN, limit: int = 100, **wanted: Any) -> list[ActivityEntry]:
        """Every page, one after the other."""
        found: list[ActivityEntry] = []
        before: str | None = None
        while True:
            page = await self.page(person, before, limit, **wanted)
            found += page.items
            if (before := page.next) is None:
                return found


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def kinds(entries: list[ActivityEntry]) -> list[str]:
    return [entry.kind for entry in entries]


async def happen(fleet: Fleet) -> None:
    await fleet.add("ada")
    await fleet.clock.sleep(1)
    await fleet.scale("launched", "id-of-ada")
    await fleet.clock.sleep(1)
    await fleet.define("bgp")
    await fleet.clock.sleep(1)
    await fleet.log.record_refusal("authenticate", "192.0.2.9", None, "/api/workers", "wrong token")


async def test_all_logs_are_one_list_newest_first_with_the_name_of_the_worker(fleet: Fleet) -> None:
    await happen(fleet)
    entries = (await fleet.page()).items
    assert sorted(kinds(entries)) == ["change", "lablet", "refusal", "scaling", "worker"]
    assert kinds(entries)[:3] == ["refusal", "lablet", "scaling"]
    assert [entry.id for entry in entries] == sorted((entry.id for entry in entries), reverse=True)
    assert [entry.worker_name for entry in entries if entry.worker_id] == ["ada", "ada"]


@pytest.mark.parametrize(
    ("person", "seen"),
    [(VIEWER, {"worker", "scaling"}), (OPERATOR, {"worker", "scaling", "lablet"})],
)
async def test_people_see_only_the_logs_of_their_role(
    fleet: Fleet, person: Principal, seen: set[str]
) -> None:
    await happen(fleet)
    assert set(kinds((await fleet.page(person)).items)) == seen
    assert (await fleet.page(person, kinds=[ActivityKind.REFUSAL])).items == []


async def test_pages_of_every_size_give_each_entry_once(fleet: Fleet) -> None:
    for number in range(7):
        await fleet.add(f"w{number}")
        await fleet.scale(f"reason {number}")
        await fleet.define(f"d{number}")
        if number % 2:
            await fleet.clock.sleep(1)
    at_once = await fleet.all_of()
    assert len(at_once) == 4 * 7
    for limit in (1, 2, 5, 28):
        assert await fleet.all_of(limit=limit) == at_once


async def test_more_than_a_piece_of_one_log_is_read_back_to_its_beginning(fleet: Fleet) -> None:
    for number in range(250):
        await fleet.scale(f"reason {number}")
        await fleet.clock.sleep(1)
    newest_first = [f"reason {number}" for number in reversed(range(250))]
    assert [entry.text for entry in await fleet.all_of(limit=500)] == newest_first
    assert [entry.text for entry in await fleet.all_of(limit=60)] == newest_first


async def test_a_filter_finds_by_person_by_resource_and_by_time(fleet: Fleet) -> None:
    await happen(fleet)
    await fleet.clock.sleep(100)
    later = fleet.clock.now()
    await fleet.add("grace", by="Bob")
    assert {entry.by for entry in await fleet.all_of(by="bob")} == {"Bob"}
    assert kinds(await fleet.all_of(about="bgp")) == ["lablet"]
    assert sorted(kinds(await fleet.all_of(about="ADA"))) == ["change", "scaling", "worker"]
    assert sorted(kinds(await fleet.all_of(since=later))) == ["change", "worker"]
    assert len(await fleet.all_of(until=later)) == 5
    assert kinds(await fleet.all_of(kinds=[ActivityKind.SCALING])) == ["scaling"]


async def test_a_page_of_a_narrow_filter_may_be_empty_and_says_where_to_go_on(fleet: Fleet) -> None:
    await fleet.define("wanted")
    await fleet.clock.sleep(1)
    for number in range(20):
        await fleet.scale(f"reason {number}")
    page = await fleet.page(about="wanted", max_read=10)
    assert (page.items, page.next is None) == ([], False)
    assert kinds(await fleet.all_of(about="wanted", max_read=10)) == ["lablet"]


async def test_what_happened_up_to_a_time_is_found_at_once_however_much_came_later(fleet: Fleet) -> None:
    await fleet.define("wanted")
    await fleet.clock.sleep(1)
    later = fleet.clock.now()
    for number in range(20):
        await fleet.scale(f"reason {number}")
    zone = timezone(timedelta(hours=2))
    for until in (later, later.astimezone(zone)):
        first = await fleet.page(until=until, max_read=10)
        assert (kinds(first.items), first.next) == (["lablet"], None)
        assert (await fleet.page(before=first.items[0].id, until=until)).items == []


def worker_with_steps(name: str, steps: int) -> Worker:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    worker = new_worker(
        worker_id=WorkerId(name), name=name, template_name="t", aws_region="r", tags={}, by="ann", now=start
    )
    for step in range(1, steps):
        at = start + timedelta(seconds=step)
        history = extend_history(worker, PROVISIONING, by="b", reason=str(step), now=at)
        worker = replace(worker, state_history=history)
    return worker


async def test_timelines_that_exist_are_read_once_and_grow_with_every_commit_out_of_order_too() -> None:
    stored = worker_with_steps("ada", 3)
    reads = 0

    async def read_all() -> list[Worker]:
        nonlocal reads
        reads += 1
        return [stored]

    timelines = Timelines(read_all)
    assert len((await timelines.piece(None, 10))[0]) == 3
    newer = worker_with_steps("ada", 5)
    timelines.on_worker_commit(None, newer)
    timelines.on_worker_commit(None, worker_with_steps("ada", 4))
    entries, rest = await timelines.piece(None, 10)
    assert ([entry.line for entry in reversed(entries)], rest) == (list(newer.state_history), None)
    assert reads == 1


async def test_no_more_timeline_entries_are_kept_than_the_limit() -> None:
    async def read_all() -> list[Worker]:
        return [worker_with_steps(f"w{number}", 10) for number in range(10)]

    timelines = Timelines(read_all, max_entries=50)
    entries, rest = await timelines.piece(None, 1000)
    assert 40 <= len(entries) <= 50
    assert rest is None
