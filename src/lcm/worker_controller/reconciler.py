"""The heart of the worker controller: observe a worker, decide, do one thing, report it.

    record ──┐
             ├─> step of its status (pure) ─> decision ─> one effect ─> report ─> next reconcile
    EC2 ─────┘

The step for each status is a file in `steps/`; what its decision means is `_carry_out` below; statuses and
reasons are reported by `status_reports.py`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never

from lcm.core.clock import Clock
from lcm.core.election import LeadershipLost
from lcm.core.loop import Reconciler
from lcm.core.results import ReconciliationResult, Requeue, Retry, Skip, Success
from lcm.domain.errors import (
    CapacityShortage,
    Conflict,
    Fenced,
    LcmError,
    PermanentError,
    QuotaExceeded,
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
from lcm.worker_controller.ports import CloudProvider, ControlPlane, Monitors
from lcm.worker_controller.running import desired_state
from lcm.worker_controller.running.license import LicenseRegistrar
from lcm.worker_controller.running.pipeline import RunningPipeline
from lcm.worker_controller.running.tags import Tagger
from lcm.worker_controller.stats import Stats
from lcm.worker_controller.status_reports import StatusReports
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
    TERMINATED: lambda _: Nothing(),
}

_SETTLED: Final = {RUNNING: DesiredStatus.RUNNING, STOPPED: DesiredStatus.STOPPED}
"""Where a worker may stay for long, if that is its desired status."""

CHANGES_PER_RECONCILE: Final = 8
"""A worker that goes through more statuses than this at once lets others go first."""

EFFECTS: Final = (Launch, StartInstance, StopInstance, TerminateInstance)
"""Decisions that change something at EC2, which cannot be fenced and cannot be undone."""

MIN_RETRY_SECONDS: Final[Mapping[type[LcmError], float]] = {CapacityShortage: 180.0, QuotaExceeded: 900.0}
"""Errors that an early retry cannot cure."""


@dataclass
class LeadershipScope:
    """What is learned under one leadership, and says nothing about the next."""

    observer: InstanceObserver
    launcher: Launcher
    discovery: Discovery


@dataclass
class WorkerReconciler(Reconciler[Worker]):
    """Makes workers what their records ask for, and keeps them that way."""

    resource_label = "worker_id"
    fatal = (LeadershipLost, Fenced)
    passing = (TransientError,)

    control_plane: ControlPlane
    cloud: CloudProvider
    clock: Clock
    check_leadership: Callable[[], None]
    """Call right before every effect at EC2 or CML, which cannot be fenced."""
    new_scope: Callable[["WorkerReconciler"], LeadershipScope]
    pipeline: RunningPipeline
    licenses: LicenseRegistrar
    tagger: Tagger
    stats: Stats
    reports: StatusReports
    wait_seconds: float
    provisioning_timeout: timedelta
    monitors: Monitors | None = None
    """Without monitors workers are reconciled, but their load and activity are not known."""

    def __post_init__(self) -> None:
        self.scope = self.new_scope(self)

    def reset(self) -> None:
        """Drop what an earlier leadership learned: another leader may have changed anything since."""
        self.scope.observer.clear_region_failures()
        self.scope = self.new_scope(self)
        self.stats.forget_all()

    # What the loop asks for.

    async def list_resources(self) -> Sequence[Worker]:
        workers = await self.control_plane.list_resources()
        readable_again = await self.scope.observer.refresh({worker.aws_region for worker in workers})
        for worker_id in sorted(readable_again):
            # Failures while their region could not be read say nothing about the time after it.
            self.loop.trigger(worker_id)
        self.stats.on_new_list(workers)
        self.pipeline.scale_down.on_new_list(workers)
        return workers

    async def fetch_single_resource(self, resource_id: str) -> Worker | None:
        worker = await self.control_plane.fetch_single_resource(resource_id)
        # Its record stays for a while, and its keys are written again when the coordination store lost them.
        return None if worker is None or worker.status is TERMINATED else worker

    def resource_id(self, resource: Worker) -> str:
        return resource.id

    def settled_marker(self, resource: Worker) -> Hashable | None:
        """The record, and what the listing of its region shows of its instance if that matters."""
        status, desired = resource.status, resource.desired_status
        if status is FAILED or (status is PENDING and desired is DesiredStatus.STOPPED):
            return resource.version
        if _SETTLED.get(status) is not desired:
            return None
        instance = self.scope.observer.listed(resource)
        return None if instance is None else (resource.version, instance)

    def is_due(self, resource: Worker) -> bool:
        return resource.status is RUNNING and self.pipeline.is_due(resource)

    def must_poll(self) -> bool:
        """A region that could not be read is read again by listing it, which only a poll does."""
        return self.scope.observer.has_unreadable_region

    def on_forgotten(self, resource_id: str) -> None:
        """A worker that is gone leaves nothing behind, neither in memory nor in the metrics."""
        worker_id = WorkerId(resource_id)
        self.scope.observer.forget(worker_id)
        if self.monitors is not None:
            self.monitors.forget(worker_id)
        self.pipeline.forget(worker_id)
        self.stats.forget(worker_id)

    def on_reconciled(self, resource_id: str, seconds: float) -> None:
        self.stats.on_reconciled(resource_id, seconds)

    # One reconcile of one worker.

    async def reconcile_resource(self, resource: Worker) -> ReconciliationResult:
        worker = resource
        self.reports.stop_monitoring_unless_live(worker)
        try:
            for _ in range(CHANGES_PER_RECONCILE):
                decision = self._decide_at_once(worker, resource.status)
                if decision is None:
                    seen = await self.scope.observer.observe(worker)
                    situation = Situation(worker, seen, self.clock.now(), self.provisioning_timeout)
                    decision = STEPS[worker.status](situation)
                    if situation.observation_failure is not None and isinstance(decision, (Wait, *EFFECTS)):
                        return Retry(situation.observation_failure)
                if worker is resource and _follows_a_mere_read(worker, decision):
                    worker = await self._verify(worker)
                outcome = await self._carry_out(worker, decision)
                if not isinstance(outcome, Worker):
                    return outcome
                worker = outcome
            return Requeue("many status changes in one reconcile", after_seconds=0)
        except Fenced:
            raise
        except Conflict as conflict:
            # The change of the record also queued the worker again: this reconcile only has to end.
            return Retry(str(conflict))
        except WrongInstanceState as error:
            self.scope.observer.invalidate(worker.id)
            return Requeue(str(error), self.wait_seconds)
        except TransientError as error:
            self.scope.observer.invalidate(worker.id)
            await self.reports.record_failure(worker, error)
            return Retry(str(error), MIN_RETRY_SECONDS.get(type(error), 0.0))
        except PermanentError as error:
            # A launch that cannot succeed is given up; a worker that exists is not.
            await self.reports.record_reason(worker, str(error), give_up=worker.status is PENDING)
            return Retry(str(error))

    def _decide_at_once(self, worker: Worker, began_as: WorkerStatus) -> Decision | None:
        """What needs no new observation: that a running worker leaves its status, and the stop or start after
        a read of the last poll interval.

        Stopping a stopped instance succeeds, and so does starting a running one. EC2 refuses any other, and
        the next reconcile observes it.
        """
        if worker.status is RUNNING:
            return desired_state.decide(worker)
        instance_id, saw = worker.instance.id, self.scope.observer.saw
        if instance_id is None:
            return None
        match began_as, worker.status, worker.desired_status:
            case WorkerStatus.RUNNING, WorkerStatus.STOPPING, DesiredStatus.STOPPED if saw(worker, "running"):
                return StopInstance(instance_id)
            case WorkerStatus.STOPPED, WorkerStatus.STOPPED, DesiredStatus.RUNNING if saw(worker, "stopped"):
                return stopped.START
            case WorkerStatus.STOPPED, WorkerStatus.STARTING, DesiredStatus.RUNNING if saw(worker, "stopped"):
                return StartInstance(instance_id)
        return None

    async def _verify(self, worker: Worker) -> Worker:
        """Verify before acting: only the newest record, under the newest epoch, may lead to an effect.

        A copy that is out of date or a leader that was replaced is refused here, before EC2 is called.
        """
        return await self.control_plane.verify(worker)

    async def _carry_out(self, worker: Worker, decision: Decision) -> Worker | ReconciliationResult:
        """Do the one thing that was decided. A worker that comes back is reconciled further at once."""
        match decision:
            case Move():
                moved = await self.reports.move(worker, decision)
                waits = decision.to is STOPPING and moved.is_live and moved.pause.extraction is not None
                return self._requeue_soon(moved, "configurations are extracted first") if waits else moved
            case Launch():
                launched = await self.scope.launcher.launch(worker)
                self.scope.observer.invalidate(worker.id)
                self.stats.on_arrival(worker, launched)
                return launched
            case WithdrawLaunchIntent(reason):
                return await self.control_plane.withdraw_launch_intent(worker, reason)
            case StartInstance(instance_id):
                self.check_leadership()
                await self.cloud.start_instance(worker.aws_region, instance_id)
                return self._requeue_soon(worker, "EC2 was asked to start it")
            case StopInstance(instance_id):
                self.check_leadership()
                await self.cloud.stop_instance(worker.aws_region, instance_id)
                return self._requeue_soon(worker, "EC2 was asked to stop it")
            case TerminateInstance(instance_id):
                self.check_leadership()
                await self.cloud.terminate_instance(worker.aws_region, instance_id)
                return self._requeue_soon(worker, "EC2 was asked to terminate it")
            case FreeLicense(is_late):
                return await self._release_license(worker, is_late)
            case Maintain(instance):
                self.stats.drifting.discard(worker.id)
                outcome = await self.pipeline.run(worker, instance)
                # Last, so that tags which may not be set keep nothing else from being done.
                if await self.tagger.reconcile(worker, instance):
                    self.scope.observer.invalidate(worker.id)
                await self.reports.restore_reason(worker)
                return outcome
            case Wait(reason, is_alarm):
                await self.reports.record_wait(worker, reason, is_alarm)
                return self._requeue_soon(worker, reason)
            case Nothing():
                self.stats.drifting.discard(worker.id)
                is_over = worker.status in (FAILED, TERMINATED)
                return Skip(f"the worker is {worker.status}") if is_over else Success()
            case _:
                assert_never(decision)

    def _requeue_soon(self, worker: Worker, reason: str) -> Requeue:
        self.scope.observer.invalidate(worker.id)
        return Requeue(reason, self.wait_seconds)

    async def _release_license(self, worker: Worker, is_late: bool) -> Worker | ReconciliationResult:
        """Deregister before the instance goes: a license that a terminated instance holds is lost.

        A CML that reported none is asked once, and does not keep its instance if it does not answer. One that
        is not adopted cannot be asked.
        """
        license = worker.license
        is_pending = license.pending_operation is LicenseOperation.DEREGISTER
        was_asked_in_vain = license.operation_in_progress and not worker.may_hold_license
        if is_late or was_asked_in_vain or not is_pending or not worker.is_trusted:
            reason = worker.license.last_error or "not deregistered before the worker was terminated"
            return await self.licenses.record_debt(worker, reason)
        retry_after = await self.licenses.advance(worker)
        return Requeue("its license is deregistered first", retry_after or self.wait_seconds)


def _follows_a_mere_read(worker: Worker, decision: Decision) -> bool:
    """Whether it changes something at EC2 right away. A first launch records its intent before it does."""
    return isinstance(decision, EFFECTS) and (not isinstance(decision, Launch) or bool(worker.launch.intent))
