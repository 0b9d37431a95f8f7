"""The heart of the worker controller: look at a worker, decide, do one thing, report it.

    record ──┐
             ├─> step of its status (pure) ─> decision ─> one effect ─> report ─> next look
    EC2 ─────┘

The step for each status is a file in `steps/`; what its decision means is `_carry_out` below.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, assert_never

import structlog

from lcm.core.clock import Clock
from lcm.core.election import ElectionWin, LeaderElectionConfig, LeadershipLost
from lcm.core.health import Health
from lcm.core.hosted_service import supervise
from lcm.core.kv.port import Change, ChangeKind, Kv
from lcm.core.reconciliation import ReconciliationConfig
from lcm.core.results import ReconciliationResult, Requeue, Retry, Success
from lcm.core.telemetry import Telemetry
from lcm.core.watch import WatchConfig, WatchTriggeredHostedService
from lcm.domain.errors import (
    CapacityShortage,
    Conflict,
    Fenced,
    LcmError,
    PermanentError,
    QuotaExceeded,
    RequestError,
    TransientError,
    WrongInstanceState,
)
from lcm.domain.launch import WorkerId
from lcm.domain.license import LicenseOperation
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    UNKNOWN,
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Worker
from lcm.worker_controller.decisions import (
    Decision,
    FreeLicense,
    Launch,
    Maintain,
    Move,
    Nothing,
    Situation,
    StartInstance,
    StopInstance,
    TerminateInstance,
    Wait,
    WithdrawLaunchIntent,
)
from lcm.worker_controller.instances.launcher import Launcher
from lcm.worker_controller.instances.observer import InstanceObserver
from lcm.worker_controller.ports import CloudProvider, CmlLicensing, CmlSystem, ControlPlane, Monitors
from lcm.worker_controller.running.idle import IdleKeeper
from lcm.worker_controller.running.license import LicenseKeeper
from lcm.worker_controller.running.monitoring import server_of
from lcm.worker_controller.running.pipeline import RunningPipeline
from lcm.worker_controller.running.scale_down import ScaleDown
from lcm.worker_controller.running.tags import Tagger
from lcm.worker_controller.settings import WorkerControllerSettings
from lcm.worker_controller.stats import Stats
from lcm.worker_controller.steps import (
    draining,
    failed,
    pending,
    provisioning,
    running,
    starting,
    stopped,
    stopping,
    terminating,
    unknown,
)
from lcm.worker_controller.sweeps.discovery import Discovery
from lcm.worker_controller.sweeps.orphans import Orphans
from lcm.worker_controller.sweeps.retention import Retention

log = structlog.get_logger(__name__)

STEPS: Final[Mapping[WorkerStatus, Callable[[Situation], Decision]]] = {
    PENDING: pending.decide,
    PROVISIONING: provisioning.decide,
    STARTING: starting.decide,
    RUNNING: running.decide,
    DRAINING: draining.decide,
    STOPPING: stopping.decide,
    STOPPED: stopped.decide,
    TERMINATING: terminating.decide,
    FAILED: failed.decide,
    UNKNOWN: unknown.decide,
    TERMINATED: lambda _: Nothing("terminated"),
}

_RESTING: Final = {RUNNING: DesiredStatus.RUNNING, STOPPED: DesiredStatus.STOPPED}
"""Where a worker may be for a long time, if that is what is wanted."""

MOVES_PER_PASS: Final = 8
"""A worker that goes through more statuses than this at once gives others a turn first."""

EFFECTS: Final = (Launch, StartInstance, StopInstance, TerminateInstance)
"""Decisions that change something at EC2, which cannot be fenced and cannot be taken back."""

PATIENCE_SECONDS: Final[Mapping[type[LcmError], float]] = {CapacityShortage: 180.0, QuotaExceeded: 900.0}
"""Errors that repeating soon cannot cure."""


class WorkerReconciler(WatchTriggeredHostedService[Worker]):
    """Makes workers what people want them to be, and keeps them that way."""

    name = "worker-reconciler"
    resource_label = "worker_id"
    fatal = (LeadershipLost, Fenced)
    passing = (TransientError,)

    def __init__(
        self,
        settings: WorkerControllerSettings,
        regions: Mapping[str, RegionConfig],
        *,
        control_plane: ControlPlane,
        cloud: CloudProvider,
        cml: CmlSystem,
        licensing: CmlLicensing,
        kv: Kv | None,
        clock: Clock,
        telemetry: Telemetry,
        health: Health,
        instance_id: str,
        monitors: Monitors | None = None,
    ) -> None:
        """Without monitors workers are kept as wanted, but nobody knows how they fare."""
        super().__init__(
            ReconciliationConfig(
                interval_seconds=settings.reconcile_interval,
                polling_enabled=settings.reconcile_polling_enabled,
                metric_prefix="worker",
            ),
            LeaderElectionConfig(
                election_key_prefix=settings.etcd_key_prefix,
                lease_ttl=settings.leader_lease_ttl,
                instance_id=instance_id,
                service_name="worker-controller",
                call_timeout_seconds=settings.etcd_call_timeout_seconds,
            ),
            WatchConfig(
                prefix=f"{settings.etcd_key_prefix}/workers/",
                debounce_seconds=settings.watch_debounce_seconds,
                call_timeout_seconds=settings.etcd_call_timeout_seconds,
            ),
            kv,
            clock=clock,
            telemetry=telemetry,
            health=health,
        )
        self._settings = settings
        self._control_plane = control_plane
        self._cloud = cloud
        self._regions = regions
        self.observer = InstanceObserver(cloud, clock, health)
        self._launcher = self._new_launcher()
        self._cml = cml
        self.discovery = self._new_discovery()
        self.stats = Stats(telemetry)
        self.counts = self.stats.counts
        use_private_ip = settings.use_private_ip_for_monitoring
        self._license_keeper = LicenseKeeper(
            control_plane,
            licensing,
            lambda worker: server_of(worker, use_private_ip=use_private_ip),
            self.check_leadership,
            clock,
            self.counts,
        )
        idle_keeper = (
            IdleKeeper(control_plane, monitors, settings.scale_down_enabled, clock, self.counts)
            if monitors is not None and settings.worker_activity_detection_enabled
            else None
        )
        self._scale_down = ScaleDown(
            control_plane, settings.scale_down, clock, lambda: self.stats.running_workers, self.counts
        )
        self._tender = RunningPipeline(
            control_plane,
            cml,
            clock,
            use_private_ip=use_private_ip,
            wait_seconds=settings.wait_seconds,
            metrics_interval_seconds=settings.metrics_poll_interval,
            count_drift=self.stats.on_drift,
            monitors=monitors,
            licenses=self._license_keeper,
            idle=idle_keeper,
            scale_down=self._scale_down,
        )
        self._tagger = Tagger(cloud, regions, settings.environment_tag, self.check_leadership)
        self._monitors = monitors

    # What the shared machinery asks for.

    async def lead(self) -> None:
        self._forget_the_fleet()
        self._launcher = self._new_launcher()
        self.retention = Retention(
            self._settings, self._regions, self._control_plane, self._cloud, self.clock
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._settings.is_discovery_enabled:
                    tasks.create_task(self._supervised(self.discovery.run, "discovery"), name="discovery")
                if self._settings.cleanup_enabled:
                    tasks.create_task(self._supervised(self.retention.run, "retention"), name="retention")
                if self._monitors is not None:
                    tasks.create_task(self._monitors.run(), name="monitors")
                tasks.create_task(super().lead(), name="workers")
        finally:
            self._forget_the_fleet()

    def _forget_the_fleet(self) -> None:
        """What one leadership saw says nothing about the next, nor about what another leader does."""
        self.observer.close_eyes()
        self.observer = InstanceObserver(self._cloud, self.clock, self.health)
        self.discovery = self._new_discovery()
        self.stats.forget_all()

    async def _supervised(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        await supervise(work, name=name, clock=self.clock, fatal=self.fatal)

    def _new_discovery(self) -> Discovery:
        orphans = Orphans(
            self._control_plane,
            self._cloud,
            self.clock,
            self.health,
            environment=self._settings.environment_tag,
            may_terminate=self._settings.orphan_termination_enabled,
            check_leadership=self.check_leadership,
            adopt=self.trigger,
            forget=self.forget,
        )
        return Discovery(
            self._settings,
            self._regions,
            self._control_plane,
            self._cloud,
            self._cml,
            self.clock,
            self.health,
            orphans,
        )

    def _new_launcher(self) -> Launcher:
        return Launcher(
            self._control_plane,
            self._cloud,
            self._regions,
            self._settings.environment_tag,
            self.check_leadership,
            self.clock,
        )

    async def claim_epoch(self, win: ElectionWin) -> int:
        return await self._control_plane.claim_leadership(win.cluster_id, win.revision, win.instance_id)

    async def list_resources(self) -> Sequence[Worker]:
        workers = await self._control_plane.list_resources()
        in_sight_again = await self.observer.refresh({worker.aws_region for worker in workers})
        for worker_id in sorted(in_sight_again):
            # The failures of a time without sight say nothing about the time after it.
            self.trigger(worker_id)
        self.stats.on_new_list(workers)
        self._scale_down.on_new_list(workers)
        return workers

    async def fetch_single_resource(self, resource_id: str) -> Worker | None:
        worker = await self._control_plane.fetch_single_resource(resource_id)
        # Its record stays for a while, and its keys are written again when the coordination store lost them.
        return None if worker is None or worker.status is TERMINATED else worker

    def resource_id(self, resource: Worker) -> str:
        return resource.id

    def settled_marker(self, resource: Worker) -> Hashable | None:
        """The record, and what the list of its region shows of its machine if that can change anything."""
        status, wanted = resource.status, resource.desired_status
        if status is FAILED or (status is PENDING and wanted is DesiredStatus.STOPPED):
            return resource.version
        if _RESTING.get(status) is not wanted:
            return None
        instance = self.observer.listed(resource)
        return None if instance is None else (resource.version, instance)

    def is_due(self, resource: Worker) -> bool:
        return resource.status is RUNNING and self._tender.is_due(resource)

    def is_polling(self) -> bool:
        """A region that is out of sight comes back with a list of it, and only a poll makes one."""
        return super().is_polling() or self.observer.is_blind

    def wakes(self, change: Change) -> bool:
        """Only what people want wakes us: status is our own report, and its echo means nothing."""
        return change.key.endswith(("/desired_state", "/license")) or change.kind is ChangeKind.DELETE

    def forget(self, resource_id: str) -> None:
        """A worker that is gone leaves nothing behind, neither in memory nor in the metrics."""
        super().forget(resource_id)
        worker_id = WorkerId(resource_id)
        self.observer.forget(worker_id)
        if self._monitors is not None:
            self._monitors.forget(worker_id)
        self._tender.forget(worker_id)
        self.stats.forget(worker_id)

    def on_reconciled(self, resource_id: str, seconds: float) -> None:
        if resource_id in self.states:  # not forgotten meanwhile, as a terminated worker is
            self.stats.on_look(resource_id, seconds)

    # One pass over one worker.

    async def reconcile_resource(self, resource: Worker) -> ReconciliationResult:
        worker = resource
        self._watch_no_more_if_down(worker)
        try:
            for _ in range(MOVES_PER_PASS):
                situation = await self._look_at(worker)
                decision = STEPS[worker.status](situation)
                if situation.no_answer is not None and isinstance(decision, (Wait, *EFFECTS)):
                    return Retry(situation.no_answer)
                if isinstance(decision, EFFECTS) and worker is resource:
                    worker = await self._confirm(worker)
                outcome = await self._carry_out(worker, decision)
                if not isinstance(outcome, Worker):
                    return outcome
                worker = outcome
            return Requeue("many moves in one pass", after_seconds=0)
        except Fenced:
            raise
        except Conflict as conflict:
            # What changed the record also woke us: this pass just has to get out of the way.
            return Retry(str(conflict))
        except WrongInstanceState as error:
            self.observer.look_again(worker.id)
            return Requeue(str(error), self._settings.wait_seconds)
        except TransientError as error:
            self.observer.look_again(worker.id)
            await self._explain(worker, str(error))
            return Retry(str(error), PATIENCE_SECONDS.get(type(error), 0.0))
        except PermanentError as error:
            # A launch that cannot succeed is given up; a worker that exists is not.
            await self._explain(worker, str(error), give_up=worker.status is PENDING)
            return Retry(str(error))

    async def _confirm(self, worker: Worker) -> Worker:
        """Write before acting: only the newest record, under the newest epoch, may lead to an effect.

        A copy that is out of date or a leader that was replaced is refused here, before EC2 hears of it.
        """
        return await self._control_plane.update_status(worker, worker.status, worker.status_reason)

    async def _look_at(self, worker: Worker) -> Situation:
        seen = await self.observer.observe(worker)
        return Situation(worker, seen, self.clock.now(), self._settings.provisioning_timeout)

    async def _carry_out(self, worker: Worker, decision: Decision) -> Worker | ReconciliationResult:
        """Do the one thing that was decided. A worker that comes back is looked at again at once."""
        match decision:
            case Move():
                return await self._move(worker, decision)
            case Launch():
                launched = await self._launcher.launch(worker)
                self.observer.look_again(worker.id)
                self.stats.on_arrival(worker, launched)
                return launched
            case WithdrawLaunchIntent(reason):
                return await self._control_plane.withdraw_launch_intent(worker, reason)
            case StartInstance(instance_id):
                self.check_leadership()
                await self._cloud.start_instance(worker.aws_region, instance_id)
                return self._look_soon(worker, "EC2 was asked to start it")
            case StopInstance(instance_id):
                self.check_leadership()
                await self._cloud.stop_instance(worker.aws_region, instance_id)
                return self._look_soon(worker, "EC2 was asked to stop it")
            case TerminateInstance(instance_id):
                self.check_leadership()
                await self._cloud.terminate_instance(worker.aws_region, instance_id)
                return self._look_soon(worker, "EC2 was asked to terminate it")
            case FreeLicense(is_late):
                return await self._free_license(worker, is_late)
            case Maintain(instance):
                self.stats.drifting.discard(worker.id)
                outcome = await self._tender.tend(worker, instance)
                # Last, so that tags which may not be set keep nothing else from being done.
                if await self._tagger.put_right(worker, instance):
                    self.observer.look_again(worker.id)
                await self._take_back_complaint(worker)
                return outcome
            case Wait(reason, is_alarm):
                await self._watch_for_stuck(worker, reason, is_alarm)
                return self._look_soon(worker, reason)
            case Nothing():
                self.stats.drifting.discard(worker.id)
                return Success()
            case _:
                assert_never(decision)

    async def _move(self, worker: Worker, move: Move) -> Worker:
        self.stats.stuck.discard(worker.id)
        moved = await self._control_plane.update_status(
            worker, move.to, move.reason, observed=move.observed, instance=move.instance
        )
        if move.drift is not None:
            self.stats.on_drift(worker, move.drift)
        self.stats.on_arrival(worker, moved)
        self._watch_no_more_if_down(moved)
        log.info(
            "moved",
            worker_id=worker.id,
            was=str(worker.status),
            status=str(moved.status),
            reason=moved.status_reason,
        )
        if moved.status is TERMINATED:
            self.forget(worker.id)
        return moved

    def _watch_no_more_if_down(self, worker: Worker) -> None:
        if self._monitors is not None and not worker.is_live:
            self._monitors.stop_monitoring(worker.id, f"the worker is {worker.status}")

    async def _watch_for_stuck(self, worker: Worker, reason: str, is_alarm: bool) -> None:
        """A machine that does not get on is shown to people; nothing is forced."""
        if not is_alarm:
            self.stats.stuck.discard(worker.id)
            return
        self.stats.stuck.add(worker.id)
        if worker.status_reason != reason:
            log.warning("stuck", worker_id=worker.id, status=str(worker.status), reason=reason)
            await self._explain(worker, reason)

    def _look_soon(self, worker: Worker, reason: str) -> Requeue:
        self.observer.look_again(worker.id)
        return Requeue(reason, self._settings.wait_seconds)

    async def _explain(self, worker: Worker, reason: str, *, give_up: bool = False) -> None:
        """Show people what holds the worker up, once and not at every attempt; FAILED if it is hopeless."""
        try:
            # Read again: the pass that failed may have changed the record on its way.
            current = await self._control_plane.fetch_single_resource(worker.id)
            if current is None or current.status is not worker.status:
                return
            target = FAILED if give_up else current.status
            if target is not current.status or reason != current.status_reason:
                await self._move(current, Move(target, reason))
        except Fenced:
            raise
        except (TransientError, RequestError) as error:
            log.info("could not record the reason", worker_id=worker.id, error=str(error))

    async def _take_back_complaint(self, worker: Worker) -> None:
        """What held a running worker up is over: it is shown for what it was before."""
        if worker.arrival is not None and worker.status_reason != worker.arrival.reason:
            await self._explain(worker, worker.arrival.reason)

    def check_leadership(self) -> None:
        """Call right before every effect at EC2 or CML, which cannot be fenced."""
        if self.leadership is None:
            raise LeadershipLost("not leading")
        self.leadership.check()

    async def _free_license(self, worker: Worker, is_late: bool) -> Worker | ReconciliationResult:
        """A license that a terminated machine still holds is lost to everybody else."""
        if is_late or worker.license.pending_operation is not LicenseOperation.DEREGISTER:
            reason = worker.license.last_error or "not given back before the worker went"
            return await self._license_keeper.give_up(worker, reason)
        look_again = await self._license_keeper.look_after(worker)
        return Requeue("its license is given back first", look_again or self._settings.wait_seconds)
