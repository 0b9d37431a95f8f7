"""The audit log of sessions: one entry for each thing that happened to one, in a ring of its own."""

from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.lablets.end_session import reject_session
from lcm.control_plane.commands.lablets.extend_session import extend_session
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.report_waiting import report_waiting
from lcm.control_plane.commands.together import all_of
from lcm.control_plane.records.audit import LabletAuditLog
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import StoreUnavailable
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import Nomination, WaitCode
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lifecycle import RUNNING, STOPPED
from lcm.domain.scaling import AuditEvent
from lcm.rest.lablets import Waiting
from unit.control_plane.test_lab_writes import LabDesk


@pytest.fixture
async def desk() -> LabDesk:
    desk = LabDesk()
    await desk.lead()
    await desk.lead_labs()
    for worker in ("w1", "w2"):
        await desk.add_worker(worker)
    return desk


async def audited(desk: LabDesk) -> list[str]:
    """The events since the last call of this, oldest first."""
    entries = await desk.plane.records.lablet_audit.newest(session_id="s1")
    assert all(entry.by and entry.reason and entry.definition_id for entry in entries)
    await desk.clock.sleep(1)
    return [entry.event for entry in reversed(entries)]


async def test_every_step_of_a_placement_is_audited_once(desk: LabDesk) -> None:
    records, policies = desk.plane.records, desk.plane.policies
    start = desk.clock.now() + timedelta(hours=1)
    await desk.add_session("s1", Timeslot(start=start, end=start + timedelta(minutes=30)))
    await desk.clock.sleep(26 * 60)
    expected: list[str] = []

    async def has_added(*events: str) -> None:
        expected.extend(events)
        assert await audited(desk) == expected

    await move_windows(records, policies, by="scheduler")
    await has_added("timeslot_opened")
    coming = Nomination(worker_id="w2", ready_at=start)
    waiting = Waiting(
        session_id="s1", code=WaitCode.WAITS_FOR_WORKER, text="waits for worker w2", nominated=coming
    )
    for _ in range(2):
        await report_waiting(records, [waiting], by="scheduler", fence=desk.fence)
    await has_added("placement_waiting", "worker_nominated")
    await records.workers.change("w1", lambda worker: replace(worker, status=STOPPED))
    await desk.order("s1", "w1")
    await has_added("placement_conflict")
    await records.workers.change("w1", lambda worker: replace(worker, status=RUNNING))
    for _ in range(2):
        await desk.order("s1", "w1")
    await has_added("placement_assigned")
    end = start + timedelta(minutes=45)
    await extend_session(records, policies, "s1", end, by="ann", may_exceed=True)
    await has_added("timeslot_extended")
    for _ in range(2):
        await desk.unschedule()
    await has_added("session_replaced")
    await reject_session(records, "s1", reason="larger than every worker", by="scheduler", fence=desk.fence)
    await has_added("session_failed", "placement_impossible")


async def test_many_sessions_push_no_scaling_event_out_and_only_the_oldest_of_their_own(
    desk: LabDesk,
) -> None:
    records = desk.plane.records
    await records.audit.record(AuditEvent.PROVISIONED, by="c", reason="first")
    log = LabletAuditLog(records.store, records.clock, records.ids, max_entries=20)
    for number in range(30):
        await log.note(LabletEvent.SESSION_CREATED, by="ann", reason=str(number))
        await desk.clock.sleep(1)
    kept = await log.newest()
    assert (len(kept) <= 20, kept[0].reason) == (True, "29")
    assert [entry.reason for entry in await records.audit.newest()] == ["first"]


async def test_entries_that_come_together_are_all_kept_while_the_oldest_are_removed(desk: LabDesk) -> None:
    """Two control planes remove the same entries, and neither request fails."""
    records = desk.plane.records
    logs = [LabletAuditLog(records.store, records.clock, records.ids, max_entries=100) for _ in range(2)]
    for turn in range(10):
        await desk.clock.sleep(1)
        await all_of(
            log.note(LabletEvent.SESSION_CREATED, by="ann", reason=f"turn {turn}")
            for log in logs
            for _ in range(20)
        )
    await logs[0].note(LabletEvent.SESSION_CREATED, by="ann", reason="the last")
    kept = Counter(entry.reason for entry in await logs[0].newest())
    assert kept.total() <= 120
    assert (kept["turn 9"], kept["turn 8"]) == (40, 40)


async def test_an_entry_stands_though_the_oldest_cannot_be_removed(desk: LabDesk) -> None:
    class Disk(MemoryStore):
        is_full = True

        async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
            if self.is_full:
                raise StoreUnavailable("the disk is full")
            await super().delete(kind, document_id, expected_version)

    async def note(number: int) -> None:
        await log.note(LabletEvent.SESSION_CREATED, by="ann", reason=str(number))
        await desk.clock.sleep(1)

    disk = Disk()
    log = LabletAuditLog(disk, desk.clock, desk.ids, max_entries=4)
    for number in range(7):
        await note(number)
    assert [entry.reason for entry in await log.newest()] == ["6", "5", "4", "3", "2", "1", "0"]
    disk.is_full = False
    await note(7)
    assert [entry.reason for entry in await log.newest()] == ["7", "6", "5"], "room is made as soon as it can"
