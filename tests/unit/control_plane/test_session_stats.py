"""What the control plane counts of sessions and claims, as Prometheus reads it."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.report_waiting import report_waiting
from lcm.control_plane.commands.lablets.schedule_sessions import schedule_sessions
from lcm.control_plane.main import ControlPlaneParts, assemble
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.admission import retain
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.session import LabletSession, WaitCode, create_session
from lcm.domain.lablet.session_changes import become_ready, instantiate
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Cml, new_worker
from lcm.rest.lablets import PlacementOrder, Waiting
from lcm.rest.schemas import LeadershipClaim
from support.control_plane import ONE_REGION
from support.virtual_time import VirtualClock
from unit.domain.lablet.test_definition import define

SSH = PortSpec(name="r1_ssh", node="r1", kind=PortKind.PAT, protocol="tcp", inside=22)


class Plane:
    """A whole control plane, with one worker and sessions, and its metrics."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        ids = RandomIds(Random(1))
        self.store = MemoryStore()
        self.parts: ControlPlaneParts = assemble(
            self.store,
            MemoryKv(self.clock, ids),
            AccessKeys(viewer="v", operator="o", admin="a", controller="c"),
            secrets=SecretStore(self.store, SecretBox.of(bytes(32))),
            policies=ONE_REGION,
            clock=self.clock,
            ids=ids,
        )
        self.records = self.parts.plane.records

    async def start(self) -> None:
        claim = LeadershipClaim(service="scheduler", cluster_id="etcd", instance_id="one", revision=1)
        self.fence = fence_for("scheduler", (await claim_leadership(self.records, claim)).epoch)
        worker = new_worker(
            worker_id=WorkerId("w1"),
            name="w1",
            template_name="metal",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=self.clock.now(),
            declared_capacity=Capacity(cpu=10, memory_gb=20, storage_gb=100, nodes=20),
        )
        await self.records.workers.add(replace(worker, status=RUNNING, cml=Cml(is_ready=True)))

    async def add(self, session_id: str, *, in_minutes: float | None = None) -> LabletSession:
        now, slot = self.clock.now(), None
        if in_minutes is not None:
            start = now + timedelta(minutes=in_minutes)
            slot = Timeslot(start=start, end=start + timedelta(minutes=30))
        session = create_session(define(), session_id=session_id, owner_id="ann", now=now, timeslot=slot)
        demand = Demand(needs=Capacity(cpu=1), ports=(SSH,))
        return await self.records.sessions.add(replace(session, demand=demand))

    async def place(self, session_id: str) -> None:
        order = PlacementOrder(session_id=session_id, worker_id="w1", attempt=1)
        policies = self.parts.plane.policies
        await schedule_sessions(self.records, policies, [order], by="scheduler", fence=self.fence)

    async def change(self, session_id: str, step: Callable[..., LabletSession]) -> None:
        await self.records.sessions.change(session_id, partial(step, now=self.clock.now()))

    async def wait(self, session_id: str, code: WaitCode) -> None:
        item = Waiting(session_id=session_id, code=code, text="because")
        await report_waiting(self.records, [item], by="scheduler", fence=self.fence)

    def metrics(self) -> dict[str, float]:
        text = self.parts.telemetry.render().decode()
        lines = re.findall(r"^([a-z_0-9]+(?:\{[^}]*\})?) ([0-9.e+-]+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in lines}


@pytest.fixture
async def plane() -> Plane:
    plane = Plane()
    await plane.start()
    return plane


async def test_sessions_are_counted_by_status_and_those_that_wait_by_reason(plane: Plane) -> None:
    for name in ("s1", "s2", "s3"):
        await plane.add(name)
    await plane.place("s1")
    await plane.wait("s2", WaitCode.NO_ROOM)
    shown = plane.metrics()
    assert shown['lcm_sessions{status="scheduled"}'] == 1
    assert shown['lcm_sessions{status="pending_scheduling"}'] == 2
    assert shown['lcm_sessions{status="failed"}'] == 0
    assert shown['lcm_sessions_waiting{reason="no_room"}'] == 1
    moved = 'lcm_instance_state_transitions_total{from_state="pending_scheduling",to_state="scheduled"}'
    assert shown[moved] == 1


async def test_the_wait_for_a_reason_is_recorded_when_it_ends(plane: Plane) -> None:
    await plane.add("s1")
    await plane.wait("s1", WaitCode.NO_ROOM)
    await plane.clock.sleep(100)
    await plane.wait("s1", WaitCode.WAITS_FOR_WORKER)
    await plane.clock.sleep(20)
    await plane.place("s1")
    shown = plane.metrics()
    assert shown['lcm_session_wait_seconds_sum{reason="no_room"}'] == pytest.approx(100, abs=1)
    assert shown['lcm_session_wait_seconds_sum{reason="waits_for_worker"}'] == pytest.approx(20, abs=1)


async def test_the_ports_of_a_worker_count_as_long_as_it_runs(plane: Plane) -> None:
    for name in ("s1", "s2"):
        await plane.add(name)
        await plane.place(name)
    assert plane.metrics()['lcm_ports_used{worker_id="w1"}'] == 2


async def test_a_missed_timeslot_counts_once_and_one_that_has_begun_is_active(plane: Plane) -> None:
    await plane.add("s1", in_minutes=10)
    await plane.add("s2", in_minutes=10)
    await plane.place("s2")
    await plane.clock.sleep(16 * 60)
    for _ in range(2):
        await move_windows(plane.records, plane.parts.plane.policies, by="scheduler")
    shown = plane.metrics()
    assert (shown["lcm_sessions_missed_total"], shown["lcm_timeslots_active"]) == (1, 1)


async def test_a_stale_claim_that_the_sweep_releases_is_counted(plane: Plane) -> None:
    session = await plane.add("s1")
    await plane.place("s1")
    await plane.records.sessions.purge(await plane.records.sessions.get(session.id))
    for _ in range(2):
        await plane.parts.session_sweep.claims.sweep()
        await plane.clock.sleep(61)
    assert plane.metrics()["lcm_claims_stale_released_total"] == 1
    assert plane.metrics()['lcm_sessions{status="scheduled"}'] == 0


async def test_the_time_to_ready_and_the_share_in_time_are_measured(plane: Plane) -> None:
    assert "lcm_sessions_ready_on_time_ratio" not in plane.metrics()
    for name in ("early", "late", "missed"):
        await plane.add(name, in_minutes=30)
    for name in ("early", "late"):
        await plane.place(name)
    await plane.clock.sleep(26 * 60)
    for name in ("early", "late"):
        await plane.change(name, instantiate)
    await plane.clock.sleep(2 * 60)
    await plane.change("early", become_ready)
    assert plane.metrics()["lcm_sessions_ready_on_time_ratio"] == 1
    await plane.clock.sleep(4 * 60)
    await plane.change("late", become_ready)
    await plane.clock.sleep(5 * 60)
    await move_windows(plane.records, plane.parts.plane.policies, by="scheduler")
    shown = plane.metrics()
    assert shown["lcm_sessions_ready_on_time_ratio"] == pytest.approx(1 / 3)
    assert shown['lcm_session_ready_seconds_count{definition="branch"}'] == 2
    assert shown['lcm_session_ready_seconds_sum{definition="branch"}'] == pytest.approx(480)


async def test_a_claim_of_a_lab_that_may_remain_is_owed(plane: Plane) -> None:
    await plane.add("s1")
    await plane.place("s1")
    assert plane.metrics()["lcm_cleanup_owed"] == 0
    now = plane.clock.now()
    await plane.records.workers.change("w1", lambda w: retain(w, "s1", 1, lab_generation=1, now=now))
    assert plane.metrics()["lcm_cleanup_owed"] == 1


async def from_a_peer(plane: Plane) -> None:
    session = create_session(define(), session_id="s9", owner_id="ann", now=plane.clock.now())
    plane.parts.plane.caches.session_stats.learn(session)


async def by_the_sweep(plane: Plane) -> None:
    session = create_session(define(), session_id="s9", owner_id="ann", now=plane.clock.now())
    plane.parts.plane.caches.session_stats.take_over([session])


@pytest.mark.parametrize("learn", [from_a_peer, by_the_sweep])
async def test_sessions_that_another_control_plane_changed_count_too(
    plane: Plane, learn: Callable[[Plane], Awaitable[None]]
) -> None:
    await learn(plane)
    shown = plane.metrics()
    assert shown['lcm_sessions{status="pending_scheduling"}'] == 1
    assert not any(name.startswith("lcm_instance_state_transitions_total{") for name in shown)
