"""A session has one claim at most, whatever dies between the three writes of its placement."""

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.lablets.end_session import end_session
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.schedule_sessions import schedule_sessions
from lcm.control_plane.commands.lablets.session_sweep import SessionSweep
from lcm.control_plane.commands.lablets.sweep_claims import ClaimSweep
from lcm.control_plane.policies import Policies
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.domain.capacity import Capacity
from lcm.domain.errors import Fenced
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.session import LabletSession, create_session
from lcm.domain.lablet.states import PENDING_SCHEDULING, SCHEDULED, EndReason, SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, STOPPED
from lcm.domain.worker import Cml, Worker, new_worker
from lcm.rest.lablets import PlacementOrder, PlacementOutcome, PlacementResult
from lcm.rest.schemas import LeadershipClaim
from support.control_plane import ONE_REGION, control_plane_over
from support.core import running
from support.virtual_time import VirtualClock
from unit.domain.lablet.test_definition import define

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PORT = PortSpec(name="r1_ssh", node="r1", kind=PortKind.PAT, protocol="tcp", inside=22)
NEEDS = Capacity(cpu=4, memory_gb=8, storage_gb=10, nodes=4)
SIZE = Capacity(cpu=10, memory_gb=20, storage_gb=100, nodes=20)


class Killed(Exception):
    """The process ends here."""


class KilledStore(MemoryStore):
    """Ends the process before or after its nth write of a session or a worker."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.kill_at: tuple[int, bool] | None = None
        """The write, and whether it still happens."""

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        self.writes += 1
        number, happens = self.kill_at or (0, False)
        if self.writes == number and not happens:
            raise Killed
        await super().replace(document, fence)
        if self.writes == number:
            raise Killed


class Desk:
    """A store with two workers and sessions that wait, and control planes that may be killed."""

    def __init__(self) -> None:
        self.store = KilledStore()
        self.clock = VirtualClock()
        self.ids = RandomIds(Random(1))
        self.plane = self.restarted()
        self.sweep = ClaimSweep(self.plane.records, self.plane.policies)
        self.fence = fence_for("resource-scheduler", 0)

    def restarted(self, policies: Policies = ONE_REGION) -> ControlPlane:
        return control_plane_over(self.store, clock=self.clock, ids=self.ids, policies=policies)

    def restart(self) -> None:
        self.store.kill_at = None
        self.plane = self.restarted()
        self.sweep = ClaimSweep(self.plane.records, self.plane.policies)

    async def lead(self, instance: str = "one", revision: int = 1) -> Fence:
        claim = LeadershipClaim(
            service="resource-scheduler", cluster_id="etcd", instance_id=instance, revision=revision
        )
        grant = await claim_leadership(self.plane.records, claim)
        self.fence = fence_for("resource-scheduler", grant.epoch)
        return self.fence

    async def add_worker(self, worker_id: str) -> None:
        worker = new_worker(
            worker_id=WorkerId(worker_id),
            name=worker_id,
            template_name="metal",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=self.clock.now(),
            declared_capacity=SIZE,
        )
        await self.plane.records.workers.add(replace(worker, status=RUNNING, cml=Cml(is_ready=True)))

    async def add_session(self, session_id: str, timeslot: Timeslot | None = None) -> None:
        session = create_session(
            define(), session_id=session_id, owner_id="ann", now=self.clock.now(), timeslot=timeslot
        )
        await self.plane.records.sessions.add(replace(session, demand=Demand(needs=NEEDS, ports=(PORT,))))

    async def order(self, session_id: str, worker_id: str, attempt: int | None = None) -> PlacementResult:
        if attempt is None:
            attempt = (await self.session(session_id)).attempt + 1
        order = PlacementOrder(session_id=session_id, worker_id=worker_id, attempt=attempt)
        (result,) = await self.orders([order])
        return result

    async def orders(self, orders: Sequence[PlacementOrder]) -> list[PlacementResult]:
        return await schedule_sessions(
            self.plane.records, self.plane.policies, orders, by="scheduler", fence=self.fence
        )

    async def session(self, session_id: str = "s1") -> LabletSession:
        return await self.plane.records.sessions.get(session_id)

    async def worker(self, worker_id: str) -> Worker:
        return await self.plane.records.workers.get(worker_id)

    async def claims(self) -> list[tuple[str, str, int]]:
        workers = await self.plane.records.workers.list_all()
        return [(w.id, claim.session_id, claim.attempt) for w in workers for claim in w.claims]

    async def sweep_until_quiet(self) -> None:
        for _ in range(3):
            await self.sweep.sweep()
            await move_windows(self.plane.records, self.plane.policies, by="sweep")
            await self.clock.sleep(61)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.lead()
    for worker in ("w1", "w2"):
        await desk.add_worker(worker)
    return desk


async def test_a_placed_session_has_its_claim_and_its_ports(desk: Desk) -> None:
    await desk.add_session("s1")
    result = await desk.order("s1", "w1")
    session, worker = await desk.session(), await desk.worker("w1")
    assert (result.outcome, result.worker_id) == (PlacementOutcome.SCHEDULED, "w1")
    assert (session.status, session.worker_id, session.ports) == (SCHEDULED, "w1", {"r1_ssh": 2000})
    assert (worker.sessions, worker.allocated_capacity) == (("s1",), NEEDS)


async def test_a_repeated_order_changes_nothing(desk: Desk) -> None:
    await desk.add_session("s1")
    first = await desk.order("s1", "w1")
    writes = desk.store.writes
    assert await desk.order("s1", "w1", attempt=1) == first
    assert desk.store.writes == writes


async def test_a_worker_takes_no_more_than_it_has_and_no_port_twice(desk: Desk) -> None:
    for name in ("s1", "s2", "s3"):
        await desk.add_session(name)
    results = await desk.orders(
        [PlacementOrder(session_id=name, worker_id="w1", attempt=1) for name in ("s1", "s2", "s3")]
    )
    assert [result.outcome for result in results] == ["scheduled", "scheduled", "refused"]
    assert results[2].label == "insufficient_capacity"
    worker, refused = await desk.worker("w1"), await desk.session("s3")
    assert sorted(port for claim in worker.claims for port in claim.ports.values()) == [2000, 2001]
    assert (refused.status, refused.place_attempts, refused.placement) == (PENDING_SCHEDULING, 1, None)


@pytest.mark.parametrize(("write", "happens"), [*itertools.product((1, 2, 3), (False, True))])
async def test_whichever_write_is_the_last_the_next_try_leaves_one_claim(
    desk: Desk, write: int, happens: bool
) -> None:
    await desk.add_session("s1")
    desk.store.kill_at = (desk.store.writes + write, happens)
    with pytest.raises(Killed):
        await desk.order("s1", "w1")
    desk.restart()
    result = await desk.order("s1", "w2")
    session = await desk.session()
    assert (result.outcome, session.status) == (PlacementOutcome.SCHEDULED, SCHEDULED)
    assert await desk.claims() == [(session.worker_id, "s1", session.attempt)]


@pytest.mark.parametrize(("write", "happens"), [*itertools.product((1, 2, 3), (False, True))])
async def test_whichever_write_is_the_last_a_session_that_ends_leaves_no_claim(
    desk: Desk, write: int, happens: bool
) -> None:
    await desk.add_session("s1")
    desk.store.kill_at = (desk.store.writes + write, happens)
    with pytest.raises(Killed):
        await desk.order("s1", "w1")
    desk.restart()
    ended = await end_session(desk.plane.records, "s1", EndReason.CANCELLED, by="ann", reason="not needed")
    assert (ended.status, await desk.claims()) == (SessionStatus.TERMINATED, [])


@pytest.mark.parametrize(("write", "happens"), [*itertools.product(range(1, 5), (False, True))])
async def test_whichever_write_of_an_end_is_the_last_the_sweep_finishes_it(
    desk: Desk, write: int, happens: bool
) -> None:
    await desk.add_session("s1")
    await desk.order("s1", "w1")
    desk.store.kill_at = (desk.store.writes + write, happens)
    with pytest.raises(Killed):
        await end_session(desk.plane.records, "s1", EndReason.CANCELLED, by="ann", reason="not needed")
    desk.restart()
    await desk.sweep_until_quiet()
    session = await desk.session()
    if write == 1 and not happens:
        assert session.status is SCHEDULED
    else:
        assert (session.status, await desk.claims()) == (SessionStatus.TERMINATED, [])


async def test_an_older_leader_places_nothing(desk: Desk) -> None:
    await desk.add_session("s1")
    old = desk.fence
    await desk.lead("two", revision=2)
    desk.fence = old
    with pytest.raises(Fenced):
        await desk.order("s1", "w1")
    assert await desk.claims() == []


async def test_a_session_that_is_ended_between_the_claim_and_its_confirmation_gives_the_claim_back(
    desk: Desk,
) -> None:
    await desk.add_session("s1")
    desk.store.kill_at = (desk.store.writes + 2, True)
    with pytest.raises(Killed):
        await desk.order("s1", "w1")
    desk.restart()
    assert await desk.claims() == [("w1", "s1", 1)]
    await desk.plane.records.sessions.change(
        "s1", lambda session: replace(session, desired_status="terminated", end_reason="cancelled")
    )
    await desk.order("s1", "w1", attempt=1)
    await desk.sweep_until_quiet()
    assert (await desk.session()).status is SessionStatus.TERMINATED
    assert await desk.claims() == []


async def test_a_claim_without_a_session_is_released_when_it_is_found_twice(desk: Desk) -> None:
    await desk.add_session("s1")
    await desk.order("s1", "w1")
    await desk.plane.records.sessions.purge(await desk.session())
    await desk.sweep.sweep()
    assert await desk.claims() == [("w1", "s1", 1)]
    await desk.clock.sleep(61)
    await desk.sweep.sweep()
    assert (await desk.claims(), desk.sweep.released) == ([], 1)


async def test_a_session_whose_worker_forgot_its_claim_is_placed_again(desk: Desk) -> None:
    await desk.add_session("s1")
    await desk.order("s1", "w1")
    await desk.plane.records.workers.change("w1", lambda worker: replace(worker, claims=()))
    await desk.sweep.sweep()
    assert (await desk.session()).status is PENDING_SCHEDULING
    await desk.order("s1", "w2")
    assert await desk.claims() == [("w2", "s1", 2)]


async def test_a_window_opens_and_a_slot_without_a_worker_is_missed_by_the_control_planes_clock(
    desk: Desk,
) -> None:
    start = desk.clock.now() + timedelta(hours=2)
    await desk.add_session("s1", Timeslot(start=start, end=start + timedelta(hours=1)))
    moved = await move_windows(desk.plane.records, desk.plane.policies, by="scheduler")
    assert (moved.opened, moved.next_at) == ((), start - timedelta(minutes=35))
    await desk.clock.sleep(85 * 60)
    moved = await move_windows(desk.plane.records, desk.plane.policies, by="scheduler")
    assert (moved.opened, (await desk.session()).status) == (("s1",), PENDING_SCHEDULING)
    await desk.clock.sleep(40 * 60)
    moved = await move_windows(desk.plane.records, desk.plane.policies, by="scheduler")
    session = await desk.session()
    assert (moved.missed, session.status, session.status_reason) == (
        ("s1",),
        SessionStatus.EXPIRED,
        "timeslot_missed",
    )


@pytest.mark.parametrize(("number", "happens"), [*itertools.product(range(1, 4), (False, True))])
async def test_whichever_write_is_the_last_a_missed_timeslot_is_audited_once(
    desk: Desk, number: int, happens: bool
) -> None:
    start = desk.clock.now() + timedelta(minutes=10)
    await desk.add_session("s1", Timeslot(start=start, end=start + timedelta(hours=1)))
    await desk.clock.sleep(60 * 60)
    desk.store.kill_at = (desk.store.writes + number, happens)
    with contextlib.suppress(Killed):
        await move_windows(desk.plane.records, desk.plane.policies, by="scheduler")
    desk.restart()
    await desk.sweep_until_quiet()
    assert (await desk.session()).status is SessionStatus.EXPIRED
    entries = await desk.plane.records.lablet_audit.newest(session_id="s1")
    assert sorted(entry.event for entry in entries) == ["session_ended", "timeslot_missed"]


async def test_the_session_sweep_ends_and_opens_without_a_scheduler(desk: Desk) -> None:
    start = desk.clock.now() + timedelta(hours=1)
    await desk.add_session("s1", Timeslot(start=start, end=start + timedelta(hours=1)))
    sweep = SessionSweep(desk.plane.records, desk.plane.caches, desk.plane.policies, Health(desk.clock))
    async with running(sweep):
        await desk.clock.sleep(27 * 60)
        assert (await desk.session()).status is PENDING_SCHEDULING
        await desk.order("s1", "w1")
        await desk.plane.records.sessions.purge(await desk.session())
        await desk.clock.sleep(3 * 60)
    assert (await desk.claims(), sweep.claims.released) == ([], 1)


async def test_a_session_that_used_the_configured_retries_fails_and_its_last_result_says_so(
    desk: Desk,
) -> None:
    desk.plane = desk.restarted(dataclasses.replace(ONE_REGION, max_retries=2))
    await desk.add_session("s1")
    await desk.plane.records.workers.change("w1", lambda worker: replace(worker, status=STOPPED))
    first, last = await desk.order("s1", "w1"), await desk.order("s1", "w1")
    assert (first.has_used_retries, last.has_used_retries) == (False, True)
    assert (await desk.session()).status is SessionStatus.FAILED
