"""Two control planes over one store: what depends on the number of workers is decided once."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random

import pytest
import yaml

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.commands.scale_up import scale_up
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.reservations import EXPIRES, Reservations
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.core.ids import RandomIds
from lcm.defaults import BUILT_IN
from lcm.domain.errors import Conflict
from lcm.domain.idle import IdlePolicy
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.scaling import ScalingPolicy
from lcm.rest.schemas import IdleCheckRequest, LeadershipClaim, ScaleUpRequest
from support.control_plane import ONE_REGION, control_plane_over
from support.core import a_worker
from support.virtual_time import VirtualClock

TEMPLATES = BUILT_IN / "worker_templates.yaml"
MORE = ScaleUpRequest(template="small", reason="no room")


class DistantStore(MemoryStore):
    """Every call takes a seeded while, so that two planes meet at every point."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        super().__init__()
        self._clock = clock
        self._chance = Random(seed)
        self.unreadable: str | None = None

    async def _travel(self) -> None:
        await self._clock.sleep(self._chance.choice((0.0, 0.001, 0.01)))

    async def get(self, kind: str, document_id: str) -> Document | None:
        await self._travel()
        found = await super().get(kind, document_id)
        await self._travel()
        return found

    async def list_all(self, kind: str) -> Sequence[Document]:
        return await self._listed(kind, super().list_all(kind))

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        return await self._listed(kind, super().list_holding(kind, prefix))

    async def _listed(self, kind: str, listing: Awaitable[Sequence[Document]]) -> Sequence[Document]:
        await self._travel()
        found = await listing
        await self._travel()
        if kind == self.unreadable:
            raise StoreUnavailable("away")
        return found

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await self._travel()
        await super().insert(document, fence)
        await self._travel()

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        await self._travel()
        await super().replace(document, fence)
        await self._travel()


def plane_over(store: DistantStore, clock: VirtualClock, number: int, policies: Policies) -> ControlPlane:
    return control_plane_over(
        store,
        clock=clock,
        ids=RandomIds(Random(number)),
        policies=policies,
    )


@pytest.mark.parametrize("seed", range(25))
async def test_two_planes_do_not_pause_below_the_minimum(seed: int) -> None:
    clock = VirtualClock()
    store = DistantStore(clock, seed)
    policies = replace(ONE_REGION, idle=IdlePolicy(min_workers=2))
    planes = [plane_over(store, clock, number, policies) for number in (1, 2)]
    claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
    fence = fence_for("worker-controller", (await claim_leadership(planes[0].records, claim)).epoch)
    workers = [
        await planes[0].records.workers.add(
            a_worker(id=WorkerId(f"w{n}"), name=f"w{n}", status=RUNNING, created_at=clock.now())
        )
        for n in range(3)
    ]
    await clock.sleep(61 * 60)
    request = IdleCheckRequest(raw_telemetry_events=[], force_check=True)
    for _ in range(3):
        async with asyncio.TaskGroup() as tasks:
            for number, worker in enumerate(workers):
                plane = planes[number % 2]
                tasks.create_task(
                    detect_idle(plane.records, plane.caches, plane.policies, worker.id, request, fence=fence)
                )
        await clock.sleep(15)
    left = await planes[1].records.workers.list_all()
    assert sum(worker.desired_status is DesiredStatus.RUNNING for worker in left) == 2


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(
    "policy",
    [ScalingPolicy(), ScalingPolicy(max_workers_per_region=1, scale_up_cooldown=EXPIRES * 0)],
    ids=["cooldown", "full"],
)
async def test_two_planes_do_not_both_add_a_worker(policy: ScalingPolicy, seed: int) -> None:
    clock = VirtualClock()
    store = DistantStore(clock, seed)
    planes = [plane_over(store, clock, number, replace(ONE_REGION, scaling=policy)) for number in (1, 2)]
    await planes[0].records.templates.seed(yaml.safe_load(TEMPLATES.read_text()))

    async def ask(plane: ControlPlane) -> bool:
        try:
            await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
        except Conflict:
            return False
        return True

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(ask(plane)) for plane in planes]
    assert sorted(task.result() for task in asked) == [False, True]
    assert len(await planes[0].records.workers.list_all()) == 1


async def test_a_scale_up_that_cannot_be_checked_is_allowed() -> None:
    clock = VirtualClock()
    store = DistantStore(clock, 1)
    plane = plane_over(store, clock, 1, ONE_REGION)
    await plane.records.templates.seed(yaml.safe_load(TEMPLATES.read_text()))
    await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
    store.unreadable = "worker"
    await scale_up(plane.records, plane.policies, MORE, by="resource-scheduler")
    store.unreadable = None
    assert len(await plane.records.workers.list_all()) == 2


async def test_a_change_that_was_made_is_not_refused_because_its_reservation_stays() -> None:
    class FullStore(MemoryStore):
        """Takes a reservation, and then no more."""

        async def replace(self, document: Document, fence: Fence | None = None) -> None:
            raise StoreUnavailable("disk full")

    async def judge(_: Mapping[str, datetime]) -> str | None:
        return None

    has_changed = False
    async with Reservations(FullStore(), VirtualClock()).reserve("pause", "ada", judge) as refusal:
        has_changed = refusal is None
    assert has_changed


async def test_a_reservation_that_a_crash_left_behind_expires() -> None:
    clock = VirtualClock()
    store = MemoryStore()
    seen: list[Mapping[str, datetime]] = []

    async def judge(reserved: Mapping[str, datetime]) -> str | None:
        seen.append(reserved)
        return None

    crashed = Reservations(store, clock).reserve("pause", "w-1", judge)
    await crashed.__aenter__()
    for wait in (0.0, EXPIRES.total_seconds()):
        await clock.sleep(wait)
        async with Reservations(store, clock).reserve("pause", "w-2", judge) as refusal:
            assert refusal is None
    assert [list(reserved) for reserved in seen] == [[], ["w-1"], []]
