"""Every lab of every worker is known with whose it is, and an unknown is no absence."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import fence_for
from lcm.domain.capacity import Capacity
from lcm.domain.errors import Conflict, Unreachable
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.listed_lab import LabKind
from lcm.domain.lablet.states import ENDED, RUNNING
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import STOPPED as WORKER_STOPPED
from lcm.lablet_controller.discovery import LOOK_SECONDS
from lcm.rest.lab_reports import LabListingReport
from lcm.rest.lablets import PlacementOrder
from lcm.rest.schemas import LABLET_CONTROLLER
from lcm.simulator.cml.accounts import ADMIN_ID
from support.lab_strangers import INTERVAL, DiscoveryBench


@pytest.fixture
async def bench() -> DiscoveryBench:
    bench = DiscoveryBench()
    await bench.open()
    return bench


async def test_a_listing_says_of_every_lab_whose_it_is(bench: DiscoveryBench) -> None:
    session = await bench.drive(RUNNING)
    bench.make_lab("of a person")
    await bench.make_leaked("00000000-0000-4000-8000-000000000001")
    await bench.discover()
    kinds = await bench.kinds()
    assert session.lab is not None
    assert kinds[session.lab.title] == "session"
    assert kinds["of a person"] == "foreign"
    assert sorted(kinds.values()) == ["foreign", "leaked", "session"]


async def test_a_foreign_lab_is_recorded_with_what_it_takes_of_the_worker(bench: DiscoveryBench) -> None:
    lab = bench.make_lab("of a person", pc1="serial:2000")
    bench.start_lab(lab)
    await bench.discover()
    record = await bench.lab(lab.id)
    assert record is not None
    assert (record.owner, record.node_count, record.tag_ports) == ("admin", 2, (2000,))
    assert (record.first_seen_at, record.discovery_wanted) == (bench.clock.now(), False)
    summary = (await bench.worker()).cml.labs
    assert summary.foreign_ports == (2000,)
    assert (summary.foreign_load.cpu, summary.foreign_load.memory_gb) == (1, 0.5)


async def test_room_is_given_back_as_soon_as_the_live_feed_shows_a_foreign_lab_stopped(
    bench: DiscoveryBench,
) -> None:
    """Until the next listing sessions would wait, and workers would be launched, for nothing."""
    lab = bench.make_lab("of a person")
    bench.start_lab(lab)
    await bench.discover()
    assert (await bench.worker()).cml.labs.foreign_load.nodes == 2
    for node_id in lab.nodes:
        await bench.report_live(lab, "STOPPED", node_id=node_id)
    assert (await bench.worker()).cml.labs.foreign_load == Capacity()


async def test_a_foreign_lab_that_is_started_takes_room_at_once(bench: DiscoveryBench) -> None:
    lab = bench.make_lab("of a person")
    await bench.discover()
    assert (await bench.worker()).cml.labs.foreign_load == Capacity()
    for node_id in lab.nodes:
        await bench.report_live(lab, "STARTED", node_id=node_id)
    load = (await bench.worker()).cml.labs.foreign_load
    assert (load.cpu, load.memory_gb, load.nodes) == (1, 0.5, 2)


async def test_the_ports_of_a_foreign_lab_are_free_as_soon_as_the_live_feed_shows_it_deleted(
    bench: DiscoveryBench,
) -> None:
    lab = bench.make_lab("of a person", pc1="serial:2000")
    await bench.discover()
    assert (await bench.worker()).cml.labs.foreign_ports == (2000,)
    await bench.report_live(lab, "deleted")
    assert (await bench.worker()).cml.labs.foreign_ports == ()


async def test_a_worker_is_listed_every_five_minutes_and_at_once_when_it_comes_up(
    bench: DiscoveryBench,
) -> None:
    def listings() -> int:
        return bench.calls.count("report_labs")

    await bench.discover()
    await bench.discover(timedelta(seconds=INTERVAL - 1))
    assert listings() == 1
    await bench.discover(timedelta(seconds=1))
    assert listings() == 2
    await bench.change_worker(lambda worker: replace(worker, status=WORKER_STOPPED))
    await bench.discover()
    await bench.change_worker(lambda worker: replace(worker, status="running"))
    await bench.discover()
    assert listings() == 3


async def test_the_first_listing_waits_neither_for_an_interval_nor_for_a_live_feed(
    bench: DiscoveryBench,
) -> None:
    """Whenever a worker becomes ready, and whenever the controller takes office, of whoever led before."""

    async def first_listing_after(work: Coroutine[Any, Any, None]) -> float:
        begun, listings = bench.clock.monotonic(), bench.calls.count("report_labs")
        await work
        while bench.calls.count("report_labs") == listings:
            await bench.clock.sleep(0.5)
        return bench.clock.monotonic() - begun

    async def nothing() -> None: ...

    async def stands_by(ready: Coroutine[Any, Any, None], leads: asyncio.Task[None]) -> float:
        waited = await first_listing_after(ready)
        leads.cancel()
        return waited

    bench.make_lab("of a person")
    await bench.change_worker(lambda worker: replace(worker, cml=replace(worker.cml, is_ready=False)))
    ready = bench.change_worker(lambda worker: replace(worker, cml=replace(worker.cml, is_ready=True)))
    async with asyncio.TaskGroup() as tasks:
        leads = tasks.create_task(bench.discovery.run())
        await bench.clock.sleep(123)
        assert bench.calls.count("report_labs") == 0
        assert await stands_by(ready, leads) <= LOOK_SECONDS + 0.5
    assert await bench.kinds() == {"of a person": "foreign"}
    await bench.clock.sleep(5)
    bench.discovery.reset()
    async with asyncio.TaskGroup() as tasks:
        assert await stands_by(nothing(), tasks.create_task(bench.discovery.run())) <= 0.5


async def test_a_person_may_have_the_labs_listed_now(bench: DiscoveryBench) -> None:
    await bench.discover()
    answer = await bench.operator.post("/api/workers/w1/labs/discover")
    assert answer.status == 202
    await bench.discover(timedelta(seconds=1))
    await bench.discover(timedelta(seconds=1))
    assert bench.calls.count("report_labs") == 2
    entries = await bench.records.lablet_audit.newest(worker_id="w1")
    assert "lab_discovery_requested" in [entry.event for entry in entries]


async def test_nodes_are_read_again_only_of_labs_that_changed(bench: DiscoveryBench) -> None:
    lab, other = bench.make_lab("a"), bench.make_lab("b")
    await bench.discover()
    await bench.clock.sleep(5)
    bench.cml.labs.change_node(
        next(node for node in lab.nodes.values() if node.label == "pc1"),
        bench.clock.now().timestamp(),
        tags=["serial:2777"],
    )
    bench.labs.calls.clear()
    await bench.discover(timedelta(seconds=INTERVAL))
    assert [lab_id for name, lab_id in bench.labs.calls if name == "nodes"] == [lab.id]
    record, unchanged = await bench.lab(lab.id), await bench.lab(other.id)
    assert record is not None
    assert unchanged is not None
    assert (record.tag_ports, unchanged.tag_ports) == ((2777,), (5001,))


async def test_a_lab_that_was_deleted_outside_is_forgotten_after_two_full_listings(
    bench: DiscoveryBench,
) -> None:
    lab = bench.make_lab("of a person")
    await bench.discover()
    bench.cml.labs.delete(lab)
    await bench.discover(timedelta(seconds=INTERVAL))
    record = await bench.lab(lab.id)
    assert record is not None
    assert record.missing_since == bench.clock.now()
    await bench.discover(timedelta(seconds=INTERVAL))
    assert await bench.lab(lab.id) is None


async def test_a_listing_of_an_account_that_is_no_administrator_removes_nothing(
    bench: DiscoveryBench,
) -> None:
    lab = bench.make_lab("of a person")
    leaked = await bench.make_leaked("00000000-0000-4000-8000-000000000001")
    await bench.discover()
    user = bench.cml.accounts.users[ADMIN_ID]
    user.admin = False
    lab.owner_id = leaked.owner_id = "another user"
    await bench.discover_for(30)
    record = await bench.lab(lab.id)
    assert record is not None
    assert (record.missing_since, (await bench.worker()).cml.labs.is_partial) == (None, True)
    assert await bench.changed_labs() == set()


@pytest.mark.parametrize("call", ["list_labs", "get_lab", "nodes", "node_definitions"])
async def test_a_failed_reading_is_no_absence(bench: DiscoveryBench, call: str) -> None:
    lab = bench.make_lab("of a person")
    await bench.discover()
    bench.labs.failing[call] = Unreachable("connection refused")
    await bench.discover_for(30)
    record = await bench.lab(lab.id)
    assert record is not None
    assert record.missing_since is None


async def test_a_listing_of_an_instance_that_was_replaced_meanwhile_is_refused(
    bench: DiscoveryBench,
) -> None:
    report = LabListingReport(instance_id="i-0", taken_at=bench.clock.now(), is_full=True)
    with pytest.raises(Conflict):
        await bench.reconciler.control_plane.report_labs("w1", report)


async def test_an_unread_lab_is_still_there(bench: DiscoveryBench) -> None:
    lab = bench.make_lab("of a person")
    bench.labs.failing["get_lab"] = Unreachable("connection reset")
    await bench.discover()
    assert await bench.lab(lab.id) is None
    del bench.labs.failing["get_lab"]
    await bench.discover(timedelta(seconds=INTERVAL))
    assert await bench.lab(lab.id) is not None


async def test_a_lab_of_a_session_that_vanishes_is_audited_as_lost(bench: DiscoveryBench) -> None:
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    await bench.discover()
    [lab] = bench.cml.labs.all()
    await bench.delete_outside(lab)
    await bench.discover_for(15)
    record = await bench.lab(lab.id)
    assert record is not None
    assert record.kind is LabKind.ORPHANED
    assert len(await bench.audited(LabletEvent.LAB_LOST)) == 1
    await bench.drive(*ENDED)
    await bench.discover_for(15)
    assert await bench.lab(lab.id) is None


async def test_a_new_lab_of_a_person_on_a_granted_port_is_audited_once(bench: DiscoveryBench) -> None:
    session = await bench.drive(RUNNING)
    [port] = session.ports.values()
    await bench.discover()
    bench.make_lab("of a person", pc1=f"serial:{port}")
    await bench.discover_for(20)
    [entry] = await bench.audited(LabletEvent.PORT_CONFLICT)
    assert str(port) in entry


async def test_the_next_session_gets_no_port_of_a_foreign_lab(bench: DiscoveryBench) -> None:
    await bench.drive(RUNNING)
    bench.make_lab("of a person", pc1="serial:2001")
    await bench.discover()
    bench.session_id = (await bench.book())["id"]
    await bench.place()
    assert list((await bench.session()).ports.values()) == [2002]


async def test_the_definitions_of_a_worker_are_read_hourly_and_when_it_comes_up(
    bench: DiscoveryBench,
) -> None:
    def readings() -> int:
        return bench.calls.count("node_definitions")

    await bench.discover()
    found = (await bench.worker()).cml.definitions
    assert found is not None
    assert "alpine" in found.node_definitions
    assert any(image.startswith("alpine") for image in found.images)
    await bench.discover_for(54)
    assert readings() == 1
    await bench.discover_for(10)
    assert readings() == 2
    await bench.change_worker(lambda worker: replace(worker, status=WORKER_STOPPED))
    await bench.discover()
    await bench.change_worker(lambda worker: replace(worker, status="running"))
    await bench.discover()
    assert readings() == 3


async def test_definitions_that_could_not_be_read_stay_unknown_and_labs_are_listed_all_the_same(
    bench: DiscoveryBench,
) -> None:
    lab = bench.make_lab("of a person")
    bench.labs.failing["image_definitions"] = Unreachable("connection refused")
    await bench.discover()
    assert (await bench.worker()).cml.definitions is None
    assert await bench.lab(lab.id) is not None


async def test_a_session_is_not_placed_where_a_node_definition_is_missing(bench: DiscoveryBench) -> None:
    del bench.cml.definitions["alpine"]
    await bench.discover()
    session = await bench.book()
    [result] = await bench.scheduler.schedule(
        [PlacementOrder(session_id=session["id"], worker_id="w1", attempt=1)]
    )
    assert result.outcome != "scheduled"
    answer = await bench.operator.get(f"/api/lablet-sessions/{session['id']}/explain")
    [worker] = answer.body["workers"]
    assert [reason["sub"] for reason in worker["reasons"]] == ["node_definition:alpine"]


async def test_a_lab_of_which_only_the_load_is_known_is_discovered_soon(bench: DiscoveryBench) -> None:
    await bench.discover()
    lab = bench.make_lab("of a person")
    fence = fence_for(LABLET_CONTROLLER, 1)
    await bench.records.labs.add_discovered(WorkerId("w1"), lab.id, at=bench.clock.now(), fence=fence)
    await bench.discover(timedelta(seconds=31))
    record = await bench.lab(lab.id)
    assert record is not None
    assert (record.title, record.discovery_wanted, record.kind) == ("of a person", False, LabKind.FOREIGN)
    await bench.discover(timedelta(seconds=31))
    assert bench.calls.count("report_labs") == 2
