"""A control plane in memory with workers, sessions and schedulers, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.drain_worker import cancel_scale_down
from lcm.control_plane.commands.lablets.end_session import reject_session
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.report_waiting import report_waiting
from lcm.control_plane.commands.lablets.schedule_sessions import schedule_sessions
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.commands.scale_up import scale_up
from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.scheduling import scheduling_snapshot
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Fence
from lcm.core.configuration import read_yaml
from lcm.core.health import Health
from lcm.core.hosted_service import run_services
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import Telemetry
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.decision import DecisionRecord
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.session import Batch, LabletSession, create_session
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, WorkerStatus
from lcm.domain.worker import Action, Cml, Worker, new_worker
from lcm.resource_scheduler.main import ResourceScheduler, assemble_scheduler, election_of
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.rest.lablets import PlacementOrder, PlacementResult, Waiting, WindowsMoved
from lcm.rest.schemas import LeadershipClaim, ScaleUpRequest
from support.control_plane import ONE_REGION, control_plane_over
from support.fleet import TEMPLATES
from support.virtual_time import VirtualClock
from unit.domain.lablet.test_definition import define

SERVICE = "resource-scheduler"
NEEDS = Capacity(cpu=4, memory_gb=8, storage_gb=10, nodes=4)
SIZE = Capacity(cpu=10, memory_gb=20, storage_gb=100, nodes=20)


class DirectSchedulingPlane:
    """The scheduler's port to the control plane, without HTTP in between."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.epoch = 0
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        """Called with the name of each call; raise to disturb it."""
        self.overtaking: Callable[[], Awaitable[object]] | None = None
        """Done once between a decision and its claims."""

    def _fence(self, call: str) -> Fence:
        self.calls.append(call)
        self.before(call)
        self._plane.records.scheduler.on_call(SERVICE)
        return fence_for(SERVICE, self.epoch)

    async def claim_leadership(self, cluster_id: str, revision: int, instance_id: str) -> int:
        claim = LeadershipClaim(
            service=SERVICE, cluster_id=cluster_id, revision=revision, instance_id=instance_id
        )
        self.epoch = (await claim_leadership(self._plane.records, claim)).epoch
        return self.epoch

    async def get_snapshot(self) -> Snapshot:
        self._fence("snapshot")
        return await scheduling_snapshot(self._plane.records, self._plane.policies, caches=self._plane.caches)

    async def schedule(self, orders: Sequence[PlacementOrder]) -> tuple[PlacementResult, ...]:
        fence = self._fence("schedule")
        overtaking, self.overtaking = self.overtaking, None
        if overtaking is not None:
            await overtaking()
        return tuple(
            await schedule_sessions(
                self._plane.records, self._plane.policies, orders, by=SERVICE, fence=fence
            )
        )

    async def report_waiting(self, items: Sequence[Waiting]) -> None:
        await report_waiting(self._plane.records, items, by=SERVICE, fence=self._fence("waiting"))

    async def reject(self, session_id: str, reason: str) -> None:
        await reject_session(
            self._plane.records, session_id, reason=reason, by=SERVICE, fence=self._fence("reject")
        )

    async def move_windows(self) -> WindowsMoved:
        self._fence("windows")
        return await move_windows(self._plane.records, self._plane.policies, by=SERVICE)

    async def scale_up(self, request: ScaleUpRequest) -> list[Worker]:
        fence = self._fence("scale-up")
        return await scale_up(self._plane.records, self._plane.policies, request, by=SERVICE, fence=fence)

    async def report_placements(self, items: Sequence[DecisionRecord]) -> None:
        await self._plane.records.placements.append(tuple(items), fence=self._fence("placements"))

    async def start_worker(self, worker_id: str) -> None:
        fence = self._fence("start")
        await request_action(self._plane.records, worker_id, Action.START, by=SERVICE, fence=fence)

    async def cancel_drain(self, worker_id: str) -> None:
        fence = self._fence("cancel-drain")
        await cancel_scale_down(self._plane.records, worker_id, by=SERVICE, fence=fence)


class Classroom:
    """Workers that run without a controller, sessions, and one or more schedulers."""

    def __init__(self, policies: Policies = ONE_REGION, store: MemoryStore | None = None) -> None:
        self.clock = VirtualClock()
        self.ids = RandomIds(Random(1))
        self.kv = MemoryKv(self.clock, self.ids)
        self.store = store or MemoryStore()
        self.publisher = Publisher(self.store, self.kv, clock=self.clock, health=Health(self.clock))
        self.plane = control_plane_over(
            self.store, clock=self.clock, ids=self.ids, policies=policies, publisher=self.publisher
        )
        self.ports: list[DirectSchedulingPlane] = []
        self.schedulers: list[ResourceScheduler] = []

    @asynccontextmanager
    async def running(self, schedulers: int = 1) -> AsyncIterator["Classroom"]:
        await self.plane.records.templates.seed(read_yaml(TEMPLATES))
        for number in range(schedulers):
            self.add_scheduler(f"scheduler-{number}")
        async with asyncio.TaskGroup() as tasks:
            services = [scheduler.service for scheduler in self.schedulers]
            task = tasks.create_task(run_services(self.kv, self.publisher, *services))
            while not any(service.election.is_leader for service in services):
                await self.clock.sleep(0.1)
            yield self
            task.cancel()

    def add_scheduler(self, instance_id: str) -> ResourceScheduler:
        port = DirectSchedulingPlane(self.plane)
        settings = ResourceSchedulerSettings()
        telemetry, health = Telemetry(), Health(self.clock)
        election = election_of(
            settings, self.kv, clock=self.clock, telemetry=telemetry, health=health, instance_id=instance_id
        )
        scheduler = assemble_scheduler(
            settings,
            election,
            control_plane=port,
            kv=self.kv,
            clock=self.clock,
            telemetry=telemetry,
            health=health,
        )
        self.ports.append(port)
        self.schedulers.append(scheduler)
        return scheduler

    async def add_worker(
        self, name: str, *, size: Capacity = SIZE, status: WorkerStatus = RUNNING, is_ready: bool = True
    ) -> None:
        worker = new_worker(
            worker_id=WorkerId(name),
            name=name,
            template_name="metal",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=self.clock.now(),
            declared_capacity=size,
        )
        await self.plane.records.workers.add(replace(worker, status=status, cml=Cml(is_ready=is_ready)))

    async def add_session(
        self,
        session_id: str,
        *,
        needs: Capacity = NEEDS,
        timeslot: Timeslot | None = None,
        batch: Batch | None = None,
    ) -> LabletSession:
        session = create_session(
            define(),
            session_id=session_id,
            owner_id="ann",
            now=self.clock.now(),
            timeslot=timeslot,
            batch=batch,
        )
        return await self.plane.records.sessions.add(replace(session, demand=Demand(needs=needs)))

    def slot(self, *, in_minutes: float, minutes: float = 60) -> Timeslot:
        start = self.clock.now() + timedelta(minutes=in_minutes)
        return Timeslot(start=start, end=start + timedelta(minutes=minutes))

    async def session(self, session_id: str) -> LabletSession:
        return await self.plane.records.sessions.get(session_id)

    async def worker(self, worker_id: str) -> Worker:
        return await self.plane.records.workers.get(worker_id)

    async def workers(self) -> list[Worker]:
        return await self.plane.records.workers.list_all()
