"""Workers, sessions and claims for tests of placement; at noon, in region `here`."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Growth, PlacementTemplate, PlacementWorker
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lifecycle import WorkerStatus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LARGE = PlacementTemplate(
    name="large", declared=Capacity(cpu=8, memory_gb=8, storage_gb=99, nodes=50), usd_per_hour=1
)
METAL = PlacementTemplate(
    name="metal", declared=Capacity(cpu=48, memory_gb=192, storage_gb=999, nodes=200), usd_per_hour=9
)
GROWTH = {"here": Growth(count=5)}


def at(minutes: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def size(cpu: float) -> Capacity:
    return Capacity(cpu=cpu, memory_gb=cpu, storage_gb=cpu, nodes=1)


def session(name: str = "s", cpu: float = 2, minute: int = 0, **changes: object) -> LabletSession:
    at = NOON - timedelta(minutes=60 - minute)
    made = LabletSession(
        id=name,
        definition_id="d",
        definition_name="lab",
        definition_version="1.0.0",
        lab_yaml_hash="",
        demand=Demand(needs=size(cpu)),
        max_duration_minutes=60,
        latest_start_minutes=30,
        owner_id="ann",
        status=SessionStatus.PENDING_SCHEDULING,
        created_at=at,
        updated_at=at,
    )
    return replace(made, **changes)


def claim(cpu: float, *, ends_at: datetime | None = None, number: int = 0) -> Claim:
    return Claim(session_id=f"c{number}", attempt=1, needs=size(cpu), at=NOON, ends_at=ends_at)


def worker(name: str = "w1", cpu: float = 8, **changes: object) -> PlacementWorker:
    declared = Capacity(cpu=cpu, memory_gb=cpu, storage_gb=99, nodes=50)
    made = PlacementWorker(id=name, name=name, region="here", status=WorkerStatus.RUNNING, declared=declared)
    return replace(made, **changes)


fleets = st.lists(
    st.tuples(
        st.sampled_from(["running", "running", "starting", "stopped", "draining"]),
        st.integers(1, 10),
        st.integers(0, 10),
    ),
    max_size=6,
).map(
    lambda rows: [
        worker(f"w{number}", cpu, status=WorkerStatus(status), claims=(claim(min(cpu, used)),))
        for number, (status, cpu, used) in enumerate(rows)
    ]
)
queues = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=12).map(
    lambda rows: [session(f"s{number}", cpu, minute) for number, (cpu, minute) in enumerate(rows)]
)
