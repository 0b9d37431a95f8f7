"""Carries out what a running worker gets in every pass; `care` says what that is, and in which order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from lcm.core.clock import Clock
from lcm.core.results import ReconciliationResult, Requeue, Success
from lcm.domain.errors import Unreachable
from lcm.domain.launch import WorkerId
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.ports import CmlSystem, ControlPlane, Monitors
from lcm.worker_controller.running import drift, metrics, monitoring, refresh
from lcm.worker_controller.running.idle import IdleKeeper
from lcm.worker_controller.running.license import LicenseKeeper
from lcm.worker_controller.running.scale_down import ScaleDown

log = structlog.get_logger(__name__)


@dataclass
class RunningPipeline:
    """Looks after workers whose instance runs as wanted."""

    control_plane: ControlPlane
    cml: CmlSystem
    clock: Clock
    use_private_ip: bool
    wait_seconds: float
    metrics_interval_seconds: float
    count_drift: Callable[[Worker, str], None]
    monitors: Monitors | None
    licenses: LicenseKeeper
    idle: IdleKeeper | None
    scale_down: ScaleDown
    _refreshed: dict[WorkerId, datetime] = field(default_factory=dict)
    """By worker: the newest request for fresh facts that was carried out."""

    def forget(self, worker_id: WorkerId) -> None:
        self._refreshed.pop(worker_id, None)
        self.licenses.forget(worker_id)
        self.scale_down.forget(worker_id)
        if self.idle is not None:
            self.idle.forget(worker_id)

    def is_due(self, worker: Worker) -> bool:
        """Whether a worker about which nothing is new needs to be looked after all the same."""
        if self.monitors is not None and not self.monitors.is_watching(worker.id):
            return True
        return self.idle is not None and self.idle.is_due(worker)

    async def tend(self, worker: Worker, instance: Instance) -> ReconciliationResult:
        """Steps 2 to 8; what people want was asked before."""
        if drift.has_moved(worker, instance):
            self.count_drift(worker, "address_changed")
            worker = await self.control_plane.report_instance(worker, instance)
        if not worker.cml_ready:
            # Booting takes minutes on metal: refused, 502 and `ready: false` are all part of it.
            worker = await self._ask_cml(worker)
            if not worker.cml_ready:
                return Requeue("CML is not ready yet", self.wait_seconds)
        else:
            worker = await self._refresh_if_wanted(worker)
        await self._watch(worker)
        self._measure_if_due(worker)
        look_again = await self.licenses.look_after(worker)
        check = await self.idle.look_after(worker) if self.idle is not None else None
        await self.scale_down.consider(worker, check)
        return Success() if look_again is None else Requeue("a license operation goes on", look_again)

    async def _refresh_if_wanted(self, worker: Worker) -> Worker:
        done_for = self._refreshed.get(worker.id)
        if not refresh.is_wanted(worker, done_for=done_for, now=self.clock.now()):
            return worker
        assert worker.refresh_requested_at is not None
        self._refreshed[worker.id] = worker.refresh_requested_at
        if self.monitors is not None:
            self.monitors.measure_soon(worker.id)
        return await self._ask_cml(worker)

    async def _watch(self, worker: Worker) -> None:
        if self.monitors is None:
            return
        if not self.monitors.has_account_of(worker.id):
            # Only the newest record says what earlier leaders have told: an older copy is refused here.
            worker = await self.control_plane.update_status(worker, worker.status, worker.status_reason)
        target = monitoring.target_of(worker, use_private_ip=self.use_private_ip)
        if target is not None:
            self.monitors.ensure_monitoring(target)

    def _measure_if_due(self, worker: Worker) -> None:
        if self.monitors is None:
            return
        age = self.monitors.measured_seconds_ago(worker.id)
        if metrics.is_due(age_seconds=age, interval_seconds=self.metrics_interval_seconds):
            self.monitors.measure_soon(worker.id)

    async def _ask_cml(self, worker: Worker) -> Worker:
        """Let CML say who it is; the record with what is new about that. Silence changes nothing."""
        host = monitoring.host_of(worker, use_private_ip=self.use_private_ip)
        if host is None:
            return worker
        try:
            told = await self.cml.get_system_information(host, worker.cml_certificate_sha256)
        except Unreachable as error:
            log.debug("CML not reached", worker_id=worker.id, error=str(error))
            return worker
        known = worker.cml_version, worker.cml_system_info
        is_news = told.ready != worker.cml_ready or (told.ready and (told.version, told.more) != known)
        is_first_contact = worker.cml_certificate_sha256 is None and told.certificate_sha256 is not None
        if not is_news and not is_first_contact:
            return worker
        return await self.control_plane.report_cml(
            worker,
            ready=told.ready,
            version=told.version,
            certificate_sha256=told.certificate_sha256,
            system_info=told.more,
        )
