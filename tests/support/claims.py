"""Claims of lablet sessions, for tests that need a worker in use."""

from datetime import UTC, datetime

from msgspec.structs import replace

from lcm.control_plane.records.groups import Records
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.admission import claim, release
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.ports import PortRange
from lcm.domain.worker import Worker

EPOCH = datetime.fromtimestamp(0, UTC)
ROOM = Capacity(cpu=96, memory_gb=192, storage_gb=1_000, nodes=200)


async def place_session(
    records: Records, worker_id: str, session_id: str, *, needs: Capacity | None = None
) -> Worker:
    """Have the worker take a session, if it admits one."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        lambda worker: claim(
            _able(worker),
            Demand(needs=needs or Capacity()),
            session_id=session_id,
            attempt=1,
            ends_at=None,
            ports=PortRange(),
            now=now,
        ),
    )


def _able(worker: Worker) -> Worker:
    """The worker with CML ready and a known size, whatever the test says of them."""
    return replace(
        worker, cml=replace(worker.cml, is_ready=True), declared_capacity=worker.declared_capacity or ROOM
    )


def claims_of(*sessions: str) -> tuple[Claim, ...]:
    return tuple(Claim(session_id=each, attempt=1, needs=Capacity(), at=EPOCH) for each in sessions)


async def remove_session(records: Records, worker_id: str, session_id: str) -> Worker:
    """Take the session off the worker."""
    now = records.clock.now()
    return await records.workers.change(worker_id, lambda worker: release(worker, session_id, 1, now=now))
