"""A lab that LCM made and no session has any more is removed, and no other lab ever is."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.lablets.abandon_session import abandon_session
from lcm.control_plane.records.audit import LABLET_KIND
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.domain.errors import LabRefused, NotFound, Unreachable
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.lab_standing import LeakPolicy
from lcm.domain.lablet.listed_lab import LeakReason
from lcm.domain.lablet.marker import Marker, lab_title, mark_notes
from lcm.domain.lablet.states import ENDED, RUNNING, STOPPING
from lcm.simulator.cml.lab import Lab
from support.control_plane import ONE_REGION
from support.lab_strangers import INTERVAL, DiscoveryBench
from support.lablet_bench import Killed

GHOST = "00000000-0000-4000-8000-00000000000"


@pytest.fixture
async def bench() -> DiscoveryBench:
    bench = DiscoveryBench()
    await bench.open()
    return bench


async def ended_session(bench: DiscoveryBench) -> str:
    """A session that has ended and left nothing."""
    await bench.drive(RUNNING)
    await bench.end()
    await bench.drive(*ENDED)
    return str(bench.session_id)


async def abandoned_session(bench: DiscoveryBench) -> str:
    """A session that a person gave up, whose lab runs and whose claim is retained."""
    await bench.drive(RUNNING)
    await bench.end()
    await bench.drive(STOPPING)
    await abandon_session(bench.records, bench.session_id, by="ann", reason="stuck")
    assert (await bench.worker()).claims[0].is_retained
    return str(bench.session_id)


async def abandoned_lab(bench: DiscoveryBench) -> Lab:
    """Its lab, which a person has started again."""
    await abandoned_session(bench)
    [lab] = bench.cml.labs.all()
    await bench.clock.sleep(5)
    bench.start_lab(lab)
    return lab


async def sweep(bench: DiscoveryBench, minutes: float = 11) -> None:
    await bench.discover()
    await bench.discover_for(minutes)
    await bench.carry_out()


async def test_a_lab_of_an_ended_session_is_stopped_wiped_and_deleted(bench: DiscoveryBench) -> None:
    lab = await abandoned_lab(bench)
    await sweep(bench)
    assert bench.titles() == []
    assert await bench.lab(lab.id) is None
    [entry] = await bench.audited(LabletEvent.LAB_LEAKED_REMOVED)
    assert lab.id in entry
    assert "session_ended" in entry


async def test_a_leaked_lab_is_gone_within_a_quarter_of_an_hour(bench: DiscoveryBench) -> None:
    await abandoned_lab(bench)
    since = bench.clock.now()
    while bench.titles():
        await bench.discover(timedelta(seconds=10))
        await bench.carry_out(passes=1)
        assert bench.clock.now() - since < timedelta(minutes=15)
    assert bench.clock.now() - since >= timedelta(minutes=10)


async def test_an_adopted_lab_is_leaked_no_more_until_it_is_disowned(bench: DiscoveryBench) -> None:
    lab = await abandoned_lab(bench)
    await bench.discover()
    path = f"/api/workers/w1/labs/{lab.id}"
    assert (await bench.operator.post(f"{path}/adopt")).body["kind"] == "adopted"
    await sweep(bench, 60)
    assert bench.titles() == [lab.title]
    assert (await bench.admin.post(f"{path}/disown")).body["leak"] == "session_ended"
    await sweep(bench)
    assert bench.titles() == []


async def test_an_adoption_stops_a_removal_that_the_sweep_has_requested(bench: DiscoveryBench) -> None:
    lab = await abandoned_lab(bench)
    await bench.discover()
    await bench.discover_for(11)
    [work] = await bench.work()
    assert work.request is not None
    assert work.request.leak is LeakReason.SESSION_ENDED
    assert (await bench.operator.post(f"/api/workers/w1/labs/{lab.id}/adopt")).body["request"] is None
    await bench.carry_out()
    assert bench.titles() == [lab.title]


async def test_the_claim_of_an_adopted_lab_is_released_and_its_ports_stay_taken(
    bench: DiscoveryBench,
) -> None:
    """People have the lab now: nothing is owed for its session any more."""
    lab = await abandoned_lab(bench)
    [claim] = (await bench.worker()).claims
    await bench.discover()
    await bench.operator.post(f"/api/workers/w1/labs/{lab.id}/adopt")
    await sweep(bench, 20)
    worker = await bench.worker()
    assert worker.claims == ()
    assert set(claim.ports.values()) <= set(worker.cml.labs.foreign_ports)
    assert worker.cml.labs.foreign_load.nodes > 0


async def test_the_claim_of_an_abandoned_session_is_released_with_its_lab(bench: DiscoveryBench) -> None:
    await abandoned_session(bench)
    await sweep(bench)
    assert bench.titles() == []
    assert (await bench.worker()).claims == ()
    assert any("lab_absent" in reason for reason in await bench.audited(LabletEvent.PLACEMENT_RELEASED))


async def test_a_retained_claim_without_any_lab_is_released_after_ten_minutes(bench: DiscoveryBench) -> None:
    await abandoned_session(bench)
    for lab in bench.cml.labs.all():
        await bench.delete_outside(lab)
    await bench.discover()
    assert (await bench.worker()).claims != ()
    await bench.discover_for(11)
    assert (await bench.worker()).claims == ()


async def test_a_retained_claim_stays_while_a_lab_may_be_its_own(bench: DiscoveryBench) -> None:
    await abandoned_session(bench)
    [lab] = bench.cml.labs.all()
    lab.title, lab.notes = "renamed by a person", ""
    await sweep(bench, 60)
    assert (await bench.worker()).claims != ()
    assert await bench.changed_labs() == {lab.id}  # while it was the session's


async def test_a_retained_claim_is_not_released_on_failed_listings(bench: DiscoveryBench) -> None:
    await abandoned_session(bench)
    for call in ("list_labs", "get_lab"):
        bench.labs.failing = {call: Unreachable("connection refused")}
        await bench.discover_for(60)
        assert (await bench.worker()).claims != ()


async def test_a_foreign_lab_is_never_touched(bench: DiscoveryBench) -> None:
    ended = await ended_session(bench)
    fleet = await bench.records.fleet.get()
    before = await bench.changed_labs()
    other_fleet = bench.make_lab("lcm-x", notes=mark_notes("", Marker(ended, 1, "another fleet")))
    copy = bench.make_lab("copy of the lab", notes=mark_notes("", Marker(ended, 1, fleet)))
    bench.start_lab(copy)
    await sweep(bench, 120)
    assert {lab.id for lab in bench.cml.labs.all()} == {other_fleet.id, copy.id}
    assert await bench.changed_labs() == before


async def test_the_lab_of_a_live_session_is_never_swept(bench: DiscoveryBench) -> None:
    await bench.drive(RUNNING)
    before = await bench.changed_labs()
    calls = len(bench.labs.calls)
    await sweep(bench, 30)
    assert len(bench.titles()) == 1
    assert not {name for name, _ in bench.labs.calls[calls:]} & {"stop_lab", "wipe_lab", "delete_lab"}
    assert await bench.changed_labs() == before


async def test_a_lab_that_becomes_a_sessions_before_its_removal_is_left(bench: DiscoveryBench) -> None:
    """Judged leaked, then the records say otherwise: the gate asks right before the change."""
    await bench.drive(RUNNING)
    session = await bench.session()
    assert session.lab is not None
    await bench.discover()
    record = await bench.lab(str(session.lab.lab_id))
    assert record is not None
    leaked = replace(record, kind="leaked", leak=LeakReason.SESSION_ENDED, leaked_since=bench.clock.now())
    await bench.records.labs.revise("w1", record.lab_id, lambda _: leaked)
    await bench.discover_for(0.1)
    calls = len(bench.labs.calls)
    await bench.carry_out()
    assert not {name for name, _ in bench.labs.calls[calls:]} & {"stop_lab", "wipe_lab", "delete_lab"}


@pytest.mark.parametrize(
    "change",
    [
        lambda lab: setattr(lab, "notes", ""),
        lambda lab: setattr(lab, "title", "mine now"),
    ],
)
async def test_a_marker_that_a_person_removes_saves_the_lab(
    bench: DiscoveryBench, change: Callable[[Any], None]
) -> None:
    lab = await bench.make_leaked(await ended_session(bench))
    await bench.discover()
    await bench.discover_for(11)
    assert await bench.work() != []
    change(lab)
    await bench.carry_out(passes=3)
    assert len(bench.titles()) == 1
    await bench.discover(timedelta(seconds=INTERVAL))
    assert await bench.work() == []
    assert (await bench.kinds())[lab.title] == "foreign"


async def test_more_than_five_leaked_labs_at_once_are_reported_and_stay(bench: DiscoveryBench) -> None:
    ended = await ended_session(bench)
    for _ in range(6):
        await bench.make_leaked(ended)
    await sweep(bench, 60)
    assert len(bench.titles()) == 6
    reported = await bench.audited(LabletEvent.LAB_LEAK_REPORTED)
    assert len(reported) == 6
    assert "more than 5" in reported[0]


async def test_after_a_restore_of_old_records_live_labs_stay(bench: DiscoveryBench) -> None:
    """The sessions of the labs are not in the records, or have not begun these imports."""
    await bench.drive(RUNNING)
    for number in range(3):
        await bench.make_leaked(f"{GHOST}{number}")
    await bench.make_leaked(bench.session_id, generation=9)
    await sweep(bench, 60)
    assert len(bench.titles()) == 5
    assert len(await bench.audited(LabletEvent.LAB_LEAK_REPORTED)) == 4


async def test_leaked_labs_may_only_be_reported() -> None:
    bench = DiscoveryBench(dataclasses.replace(ONE_REGION, leaked_labs=LeakPolicy.REPORT))
    await bench.open()
    await bench.make_leaked(await ended_session(bench))
    await sweep(bench, 60)
    assert len(bench.titles()) == 1
    assert len(await bench.audited(LabletEvent.LAB_LEAK_REPORTED)) == 1


async def test_of_two_labs_of_one_import_the_recorded_one_stays(bench: DiscoveryBench) -> None:
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    await bench.make_leaked(session.id, title=session.lab.title)
    await sweep(bench, 6)
    assert [lab.id for lab in bench.cml.labs.all()] == [session.lab.lab_id]
    assert len(await bench.audited(LabletEvent.LAB_DUPLICATE_REMOVED)) == 1
    assert (await bench.session()).status is RUNNING


async def test_of_two_labs_of_one_import_the_second_lives_no_longer_than_three_minutes(
    bench: DiscoveryBench,
) -> None:
    """No listing is due for five minutes: the news of a lab that no session has recorded brings one."""
    session = await bench.drive(RUNNING)
    await bench.discover()
    await bench.clock.sleep(40)
    second = await bench.make_leaked(session.id)
    since = bench.clock.now()
    await bench.report_created(second)
    while len(bench.titles()) > 1:
        await bench.discover(timedelta(seconds=10))
        await bench.carry_out(passes=1)
        assert bench.clock.now() - since < timedelta(minutes=3)


async def test_a_duplicate_that_a_person_started_stays(bench: DiscoveryBench) -> None:
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    copy = await bench.make_leaked(session.id, title=session.lab.title)
    bench.start_lab(copy)
    await sweep(bench, 60)
    assert len(bench.titles()) == 2
    assert len(await bench.audited(LabletEvent.LAB_LEAK_REPORTED)) == 1


async def test_a_copy_that_a_person_uses_outlives_its_session(bench: DiscoveryBench) -> None:
    """LCM starts only labs that it has recorded, so whoever started this one may need it."""
    session = await bench.drive(RUNNING)
    assert session.lab is not None
    copy = await bench.make_leaked(session.id, title=session.lab.title)
    bench.start_lab(copy)
    await bench.end()
    await bench.drive(*ENDED)
    await sweep(bench, 60)
    assert [lab.id for lab in bench.cml.labs.all()] == [copy.id]
    assert copy.id not in await bench.changed_labs()


@pytest.mark.parametrize("number", range(1, 40, 3))
@pytest.mark.parametrize("is_after", [False, True])
async def test_a_removal_goes_on_whatever_dies(bench: DiscoveryBench, number: int, *, is_after: bool) -> None:
    await abandoned_session(bench)
    await bench.discover()
    await bench.discover_for(11)
    begun = len(bench.calls)

    def die_once(at: int, _: str, is_done: bool) -> None:
        if at == begun + number and is_done is is_after:
            bench.disturb = lambda number, name, is_done: None
            raise Killed

    bench.disturb = die_once
    await bench.carry_out(passes=60)
    await bench.discover_for(11)
    assert bench.titles() == []
    assert (await bench.worker()).claims == ()
    assert await bench.audited(LabletEvent.LAB_LEAKED_REMOVED) != []


@pytest.mark.parametrize("call", ["stop_lab", "wipe_lab", "delete_lab"])
async def test_a_removal_that_cml_refuses_is_tried_again_and_shown(bench: DiscoveryBench, call: str) -> None:
    lab = await abandoned_lab(bench)
    await bench.discover()
    await bench.discover_for(11)
    bench.labs.failing[call] = LabRefused(400, "not now")
    await bench.carry_out(passes=60)
    record = await bench.lab(lab.id)
    assert record is not None
    assert record.request is not None
    assert ("not now" in record.request.error, record.request.is_over) == (True, False)
    del bench.labs.failing[call]
    await bench.clock.sleep(300)
    await bench.carry_out()
    assert bench.titles() == []


async def test_an_old_leader_removes_nothing(bench: DiscoveryBench) -> None:
    await bench.make_leaked(await ended_session(bench))
    await bench.discover()
    await bench.discover_for(11)
    old = bench.requests
    await bench.restart_controller()
    calls = len(bench.labs.calls)
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as extractions:
            await old.run_pass(extractions)
    assert not {name for name, _ in bench.labs.calls[calls:]} & {"stop_lab", "wipe_lab", "delete_lab"}


async def test_a_lab_that_is_gone_already_is_only_recorded(bench: DiscoveryBench) -> None:
    lab = await bench.make_leaked(await ended_session(bench))
    await bench.discover()
    await bench.discover_for(11)
    bench.cml.labs.delete(lab)
    await bench.carry_out()
    assert await bench.lab(lab.id) is None
    with pytest.raises(NotFound):
        await bench.reconciler.control_plane.get_lab_record("w1", lab.id)


@pytest.mark.parametrize("has_lab", [True, False])
async def test_a_session_that_came_back_to_its_worker_does_not_keep_its_earlier_claim(
    bench: DiscoveryBench, *, has_lab: bool
) -> None:
    """Its present lab is another import than the one for which the earlier claim was retained."""
    session = await bench.drive(RUNNING)
    await as_second_import(bench)
    earlier = replace((await bench.worker()).claims[0], attempt=0, lab_generation=1, is_retained=True)
    await bench.change_worker(lambda worker: replace(worker, claims=(earlier, *worker.claims)))
    if has_lab:
        await bench.make_leaked(session.id, 1)
    await sweep(bench, 25)
    assert [claim.attempt for claim in (await bench.worker()).claims] == [1]
    assert len(bench.titles()) == 1
    assert (await bench.session()).status is RUNNING


async def as_second_import(bench: DiscoveryBench) -> None:
    """The session and its lab as they are if it was imported for the second time."""
    [lab] = bench.cml.labs.all()
    marker = Marker(bench.session_id, 2, await bench.records.fleet.get())
    lab.title, lab.notes = lab_title(bench.session_id, 2, "branch"), mark_notes("", marker)
    await bench.records.sessions.change(
        bench.session_id,
        lambda session: replace(
            session, lab_generation=2, lab=session.lab and replace(session.lab, generation=2)
        ),
    )


class MortalStore(MemoryStore):
    """Ends the control plane before or after its nth write."""

    def __init__(self) -> None:
        super().__init__()
        self.kill_at = 0
        self.happens = False
        self.writes = 0

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        if document.kind == LABLET_KIND:  # an entry that cannot be written holds nothing up
            await super().insert(document, fence)
        else:
            await self._write(super().insert(document, fence))

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        await self._write(super().replace(document, fence))

    async def delete(self, kind: str, document_id: str, version: int) -> None:
        await self._write(super().delete(kind, document_id, version))

    async def _write(self, write: Coroutine[Any, Any, None]) -> None:
        self.writes += 1
        if self.writes != self.kill_at:
            await write
            return
        if self.happens:
            await write
        else:
            write.close()
        raise StoreUnavailable("the process ends here")


@pytest.mark.parametrize("number", range(1, 12))
@pytest.mark.parametrize("happens", [False, True])
async def test_what_a_killed_control_plane_leaves_the_next_listings_finish(
    number: int, *, happens: bool
) -> None:
    store = MortalStore()
    bench = DiscoveryBench(store=store)
    await bench.open()
    await abandoned_session(bench)
    bench.make_lab("of a person")
    await bench.discover()
    store.kill_at, store.happens = store.writes + number, happens
    for _ in range(40):
        before = store.writes
        await bench.discover(timedelta(seconds=60))
        await bench.carry_out(passes=2)
        if before < store.kill_at <= store.writes:
            bench.restart()
    assert store.writes >= store.kill_at, "it was not killed"
    assert bench.titles() == ["of a person"]
    assert (await bench.worker()).claims == ()
    assert await bench.audited(LabletEvent.LAB_LEAKED_REMOVED) != []
    assert await bench.kinds() == {"of a person": "foreign"}
