"""Logs and terminated workers, of which there may be very many, are read in pieces, and no piece too many."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from lcm.control_plane.access import security_log
from lcm.control_plane.access.security_log import REFUSAL_KIND, SecurityLog
from lcm.control_plane.records import audit, workers
from lcm.control_plane.records.audit import AuditLog
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.bounded_log import BoundedLog
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import LOG_KIND, Document
from lcm.core.ids import RandomIds
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, TERMINATED
from lcm.domain.scaling import AuditEvent
from lcm.domain.security import AuditOutcome, SecurityEntry
from support.core import a_worker
from support.virtual_time import BEGINNING, VirtualClock


class PiecewiseStore(MemoryStore):
    """Counts the pieces that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = 0

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        self.pieces += 1
        return await super().list_newest(kind, before, limit)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (audit, security_log, workers):
        monkeypatch.setattr(module, "PIECE", 10)


@pytest.mark.parametrize(
    ("seconds", "found", "pieces"),
    [(0, 1, 1), (8.5, 9, 1), (9, 10, 2), (12, 13, 2), (29, 30, 4), (600, 30, 4)],
)
async def test_the_audit_log_is_read_back_to_a_moment(seconds: float, found: int, pieces: int) -> None:
    store, clock = PiecewiseStore(), VirtualClock()
    log = AuditLog(store, clock, RandomIds())
    for number in range(30):
        await clock.sleep(1)
        await log.record(AuditEvent.SCALE_UP_ACCEPTED, by="scheduler", reason=str(number))
    entries = await log.since(clock.now() - timedelta(seconds=seconds))
    assert [entry.reason for entry in entries] == [str(29 - place) for place in range(found)]
    assert store.pieces == pieces


class TestSecurityLog:
    """Of entry n, which is of second n; the even ones are refusals."""

    @pytest.fixture
    async def store(self) -> PiecewiseStore:
        store = PiecewiseStore()
        logs = [BoundedLog(store, kind, SecurityEntry, 1_000) for kind in (REFUSAL_KIND, LOG_KIND)]
        for number in range(60):
            entry = SecurityEntry(
                id=f"{number:03}",
                at=BEGINNING + timedelta(seconds=number),
                action="GET /",
                outcome=AuditOutcome.REFUSED if number % 2 == 0 else AuditOutcome.DONE,
                address="10.0.0.1",
                target=str(number % 3),
            )
            await store.insert(logs[number % 2].document(entry))
        return store

    @staticmethod
    async def ids(
        store: PiecewiseStore, target: str | None = None, before: str | None = None, limit: int = 1_000
    ) -> list[int]:
        log = SecurityLog(store, VirtualClock())
        found = await log.wanted(lambda entry: target in (None, entry.target), before, limit)
        return [int(entry.id) for entry in found]

    async def test_both_logs_are_one_newest_first(self, store: PiecewiseStore) -> None:
        assert await self.ids(store) == list(range(59, -1, -1))
        assert await self.ids(store, "1") == list(range(58, -1, -3))

    async def test_only_as_much_is_read_as_is_shown(self, store: PiecewiseStore) -> None:
        assert await self.ids(store, limit=10) == list(range(59, 49, -1))
        assert store.pieces == 2, "the newest piece of each"
        assert await self.ids(store, "1", limit=4) == [58, 55, 52, 49]
        assert store.pieces == 5, "a piece has three that are wanted, or four"

    async def test_pages_neither_repeat_nor_leave_out_an_entry(self, store: PiecewiseStore) -> None:
        seen: list[int] = []
        while page := await self.ids(store, "2", f"{seen[-1]:03}" if seen else None, 7):
            seen += page
        assert seen == list(range(59, -1, -3))


async def test_each_worker_is_read_once_terminated_or_not_and_an_unreadable_one_hides_no_other() -> None:
    store = PiecewiseStore()
    records = Workers(store)
    for number in range(30):
        name = WorkerId(f"w{number:02}")
        await records.add(a_worker(id=name, name=name, status=TERMINATED if number % 2 else RUNNING))
    for unreadable in ("w", "w10-", "w19-", "w29-"):
        await store.insert(Document("worker", unreadable, 1, b"torn"))
    found = [worker.id async for worker in records.each()]
    assert found == [f"w{number:02}" for number in range(29, -1, -1)]
    assert store.pieces == 5
    assert len(await records.list_live()) == 15
