"""Simulated processes: the real control plane and the real controllers, which can crash, freeze and restart.

A process is its tasks and its memory; a crash ends both. To simulate another kind, subclass `Process`, wire
the real thing in `run`, with the ports of `simulation.world.ports`, and name it in `World`.
"""

import asyncio
from abc import abstractmethod
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import ControlPlaneParts, Limits, assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.templates import Templates
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.election import Election
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.telemetry import Telemetry
from lcm.core.timeouts import timeout
from lcm.domain.discovery import ImportTrust
from lcm.domain.idle import IdlePolicy
from lcm.domain.lablet.timeslot import TimeslotPolicy
from lcm.domain.scaling import ScalingPolicy
from lcm.domain.template import RegionConfig
from lcm.lablet_controller.main import LabletController, assemble_lablets
from lcm.lablet_controller.main import election_of as lablet_election_of
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.resource_scheduler.main import ResourceScheduler, assemble_scheduler
from lcm.resource_scheduler.main import election_of as scheduler_election_of
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.rest.client import ControlPlaneClient
from lcm.rest.lablet_client import LabletClient
from lcm.rest.plane_clock import PlaneClock
from lcm.rest.scheduling_client import SchedulingClient
from lcm.rest.schemas import LABLET_CONTROLLER
from lcm.worker_controller.main import WorkerController, assemble_controller, election_of
from lcm.worker_controller.monitoring.service import LiveMonitoring
from lcm.worker_controller.settings import WorkerControllerSettings
from simulation.world import ports
from simulation.world.calls import Role, Violation
from simulation.world.knobs import Knobs
from simulation.world.lab_ports import SimulatedLabs, SimulatedPortProbe
from simulation.world.live_ports import config_of, simulated_monitoring
from support.memory_cloud import VPC

if TYPE_CHECKING:
    from simulation.world.world import World

REGION = RegionConfig(region="us-east-1", security_group_ids=("sg-1",), subnet_id="subnet-1", key_name="k")
KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")
RESTART_SECONDS = 1.0


class ProcessCrashed(BaseException):
    """This process has crashed; none of its code may continue."""


class ProcessClock:
    """Time as one process sees it: its wall clock may be wrong, and it stops with the process."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._clock = process.world.clock
        self.monotonic = self._clock.monotonic

    def now(self) -> datetime:
        return self._clock.now() + self._process.skew

    async def sleep(self, seconds: float) -> None:
        self._process.check_alive()
        await self._clock.sleep(seconds)
        if self._process.frozen_until:
            await self._process.awake()
        self._process.check_alive()


class Process:
    """One process of the fleet."""

    role: Role

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.incarnation = 0
        self.is_alive = False
        self.skew = timedelta()
        self.frozen_until = 0.0
        self._thawed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self) -> None:
        """One incarnation, from start to crash."""

    def forget(self) -> None:
        """Drop the memory of this incarnation."""

    async def live(self) -> None:
        """Run one incarnation after another."""
        while not self.world.is_over:
            self.incarnation += 1
            self.is_alive = True
            try:
                async with asyncio.TaskGroup() as tasks:
                    self._task = tasks.create_task(self.run(), name=f"{self.name}#{self.incarnation}")
            except BaseExceptionGroup as errors:
                unexpected = errors.split((ProcessCrashed, asyncio.CancelledError))[1]
                if unexpected is not None and self.is_alive:
                    self.world.fail(Violation("process died", f"{self.name}: {_leaf(unexpected)!r}"))
                    return
            if self.is_alive:
                self.world.fail(Violation("process died", f"{self.name}: its work ended by itself"))
                return
            self.forget()
            await self.world.clock.sleep(RESTART_SECONDS)

    def crash(self) -> None:
        """Crash as by SIGKILL: at once, and without clean-up."""
        if self.is_alive and self._task is not None:
            self.world.note_disturbance(of=self.role)
            self.is_alive = False
            self.forget()
            self._task.cancel()

    def freeze(self, seconds: float) -> None:
        """Freeze as by SIGSTOP, with SIGCONT after that long: only this process stands still."""
        self.world.note_disturbance(seconds, of=self.role)
        self.frozen_until = self.world.clock.monotonic() + seconds
        self._thawed.clear()

    def thaw(self) -> None:
        """Thaw as by SIGCONT now: all its tasks continue together."""
        self.frozen_until = 0.0
        self._thawed.set()

    def check_alive(self) -> None:
        if not self.is_alive:
            raise ProcessCrashed(self.name)

    async def awake(self) -> None:
        """Return once the process is not frozen any more."""
        while (left := self.frozen_until - self.world.clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with timeout(left):
                    await self._thawed.wait()


class User(Process):
    """People; they neither crash nor freeze."""

    role = "user"

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.is_alive = True

    async def run(self) -> None:
        raise NotImplementedError("the user has no process of its own")


class PlaneProcess(Process):
    """The control plane."""

    role = "plane"
    parts: ControlPlaneParts | None = None
    requests: asyncio.TaskGroup | None = None

    def forget(self) -> None:
        self.parts = self.requests = None

    async def run(self) -> None:
        store, knobs = ports.SimulatedStore(self), self.world.knobs
        try:
            await Templates(store).seed(self.world.templates)
        except StoreUnavailable:
            # A control plane that cannot read its store does not start; its supervisor restarts it.
            self.crash()
            raise ProcessCrashed(self.name) from None
        async with asyncio.TaskGroup() as requests:
            self.requests = requests
            self.parts = assemble(
                store,
                ports.SimulatedKv(self),
                KEYS,
                clock=ProcessClock(self),
                ids=self.world.ids,
                secrets=SecretStore(store, SecretBox.of(bytes(32))),
                policies=Policies(
                    regions=(REGION.region,),
                    default_region=REGION.region,
                    idle=IdlePolicy(
                        timeout=timedelta(seconds=knobs.idle_timeout_seconds),
                        snooze=timedelta(seconds=knobs.idle_timeout_seconds),
                        check_interval=timedelta(seconds=knobs.idle_check_seconds),
                        min_workers=knobs.min_workers,
                        extract_within=(
                            timedelta(seconds=knobs.extract_seconds) if knobs.extract_seconds else None
                        ),
                    ),
                    scaling=ScalingPolicy(
                        max_workers_per_region=knobs.max_workers,
                        scale_up_cooldown=timedelta(seconds=knobs.scale_up_cooldown_seconds),
                    ),
                    activity_events_kept=knobs.activity_events_kept,
                    times=times_of(knobs),
                ),
                limits=Limits(
                    event_buffer=knobs.event_buffer,
                    event_backlog_bytes=knobs.event_backlog_bytes,
                    heartbeat_seconds=knobs.heartbeat_seconds,
                    publish_sweep_seconds=knobs.publish_sweep_seconds,
                ),
            )
            requests.create_task(self.parts.publisher.run(), name="publisher")
            if knobs.schedulers:
                requests.create_task(self.parts.session_sweep.run(), name="session sweep")


class Candidate(Process):
    """A process that competes with others of its role for a lease."""

    @property
    def election(self) -> Election | None:
        """That of this incarnation."""
        raise NotImplementedError

    @property
    def instance_id(self) -> str:
        return f"{self.name}-{self.incarnation}"

    @property
    def leadership_id(self) -> str:
        """Identifies one leadership of this from another."""
        leadership = self.election.leadership if self.election is not None else None
        return f"{self.instance_id}/{leadership.epoch if leadership else 0}"

    @property
    def holds_the_lease(self) -> bool:
        """Whether the coordination store holds so, too."""
        return self.election is not None and (
            self.world.kv.peek(self.election.config.key) == self.instance_id
        )

    @property
    def is_leading(self) -> bool:
        """Whether it believes that it leads, and is inside its deadline."""
        election = self.election  # asked at every call of any process
        leadership = election.leadership if election is not None else None
        return leadership is not None and self.world.clock.monotonic() < leadership.deadline


class ControllerProcess(Candidate):
    """A worker controller."""

    role = "controller"
    controller: WorkerController | None = None
    monitoring: LiveMonitoring | None = None

    def forget(self) -> None:
        self.controller = self.monitoring = None

    @property
    def election(self) -> Election | None:
        return self.controller.election if self.controller is not None else None

    def check_leadership(self) -> None:
        """Right before a change at EC2, after all waiting is over."""
        if self.controller is not None:
            self.controller.election.check()

    async def run(self) -> None:
        clock, knobs = ProcessClock(self), self.world.knobs
        settings, kv = _settings_of(knobs), ports.SimulatedKv(self)
        health = Health(clock)
        telemetry = Telemetry(RandomIds(Random(f"traces/{self.instance_id}")))
        election = election_of(
            settings, kv, clock=clock, telemetry=telemetry, health=health, instance_id=self.instance_id
        )
        election.config = replace(
            election.config,
            call_timeout_seconds=knobs.election_timeout_seconds,
            retry_interval=knobs.election_retry_seconds,
        )
        control_plane = ControlPlaneClient(
            ports.SimulatedTransport(self), KEYS.controller, "worker-controller", lambda: election.epoch
        )
        if knobs.monitoring:
            self.monitoring = simulated_monitoring(self, control_plane, clock, health)
        self.controller = controller = assemble_controller(
            settings,
            {REGION.region: REGION},
            election,
            control_plane=control_plane,
            cloud=ports.SimulatedCloud(self, clock),
            cml=ports.SimulatedCml(self),
            licensing=ports.SimulatedLicensing(self),
            kv=kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
            monitors=self.monitoring,
        )
        controller.loop.config = replace(
            controller.loop.config,
            queue_capacity=knobs.queue_capacity,
            max_concurrent=knobs.max_concurrent,
            max_parked=knobs.max_parked,
        )
        await controller.service.run()


class SchedulerProcess(Candidate):
    """A resource scheduler."""

    role = "scheduler"
    scheduler: ResourceScheduler | None = None

    def forget(self) -> None:
        self.scheduler = None

    @property
    def election(self) -> Election | None:
        return self.scheduler.service.election if self.scheduler is not None else None

    async def run(self) -> None:
        clock, knobs = ProcessClock(self), self.world.knobs
        settings, kv = _scheduler_settings_of(knobs), ports.SimulatedKv(self)
        health = Health(clock)
        telemetry = Telemetry(RandomIds(Random(f"traces/{self.instance_id}")))
        election = scheduler_election_of(
            settings, kv, clock=clock, telemetry=telemetry, health=health, instance_id=self.instance_id
        )
        election.config = replace(
            election.config,
            call_timeout_seconds=knobs.election_timeout_seconds,
            retry_interval=knobs.election_retry_seconds,
        )
        control_plane = SchedulingClient(
            ports.SimulatedTransport(self), KEYS.controller, "resource-scheduler", lambda: election.epoch
        )
        self.scheduler = assemble_scheduler(
            settings,
            election,
            control_plane=control_plane,
            kv=kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
        )
        await self.scheduler.service.run()


class LabletProcess(Candidate):
    """A lablet controller."""

    role = "lablets"
    lablets: LabletController | None = None

    def forget(self) -> None:
        self.lablets = None

    @property
    def election(self) -> Election | None:
        return self.lablets.service.election if self.lablets is not None else None

    async def run(self) -> None:
        clock, knobs = ProcessClock(self), self.world.knobs
        settings, kv = _lablet_settings_of(knobs), ports.SimulatedKv(self)
        health = Health(clock)
        telemetry = Telemetry(RandomIds(Random(f"traces/{self.instance_id}")))
        election = lablet_election_of(
            settings, kv, clock=clock, telemetry=telemetry, health=health, instance_id=self.instance_id
        )
        election.config = replace(
            election.config,
            call_timeout_seconds=knobs.election_timeout_seconds,
            retry_interval=knobs.election_retry_seconds,
        )
        plane_clock = PlaneClock(clock)
        control_plane = LabletClient(
            ports.SimulatedTransport(self),
            KEYS.controller,
            LABLET_CONTROLLER,
            lambda: election.epoch,
            plane_clock,
        )
        self.lablets = lablets = assemble_lablets(
            settings,
            election,
            control_plane=control_plane,
            labs=SimulatedLabs(self),
            port_probe=SimulatedPortProbe(self),
            kv=kv,
            clock=clock,
            plane_clock=plane_clock,
            telemetry=telemetry,
            health=health,
        )
        # Less often than installed: that only costs time here.
        lablets.discovery.look_seconds = lablets.requests.look_seconds = knobs.look_seconds
        await lablets.service.run()


def times_of(knobs: Knobs) -> TimeslotPolicy:
    """The times of sessions: as installed, in a few minutes."""
    return TimeslotPolicy(
        lead=timedelta(minutes=knobs.lead_minutes),
        worker_boot=timedelta(minutes=knobs.boot_minutes),
        worker_resume=timedelta(minutes=1),
        lab_lead=timedelta(minutes=1),
        grace=timedelta(minutes=2),
        teardown=timedelta(minutes=1),
    )


@lru_cache(maxsize=8)
def _scheduler_settings_of(knobs: Knobs) -> ResourceSchedulerSettings:
    return ResourceSchedulerSettings(
        leader_lease_ttl=knobs.lease_ttl, reconcile_interval=knobs.reconcile_interval
    )


@lru_cache(maxsize=8)
def _lablet_settings_of(knobs: Knobs) -> LabletControllerSettings:
    return LabletControllerSettings(
        leader_lease_ttl=knobs.lease_ttl,
        reconcile_interval=knobs.reconcile_interval,
        lab_start_minutes=times_of(knobs).lab_lead.total_seconds() / 60,
    )


@lru_cache(maxsize=8)
def _settings_of(knobs: Knobs) -> WorkerControllerSettings:
    """Reading settings takes longer than many incarnations live."""
    return WorkerControllerSettings(
        leader_lease_ttl=knobs.lease_ttl,
        reconcile_interval=knobs.reconcile_interval,
        wait_seconds=knobs.wait_seconds,
        watch_debounce_seconds=knobs.debounce_seconds,
        provisioning_timeout_seconds=knobs.provisioning_seconds,
        worker_discovery_enabled=knobs.discovery,
        worker_discovery_interval=knobs.discovery_interval,
        auto_import_trust=ImportTrust.TAG if knobs.is_import_allowed else ImportTrust.ADOPT,
        auto_import_allow=f"vpc={VPC}" if knobs.is_import_allowed else "",
        orphan_termination_enabled=knobs.orphan_termination,
        cleanup_enabled=False,
        scale_down_enabled=knobs.scale_down,
        min_workers=knobs.min_workers,
        idle_detection_interval=knobs.idle_check_seconds,
        metrics_poll_interval=config_of(knobs).poll_interval,
        worker_activity_detection_enabled=knobs.people,
    )


def _leaf(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
