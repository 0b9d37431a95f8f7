"""The maintenance of a running worker, once per pass; `running` lists the steps and their order."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from lcm.cml.sessions import host_of
from lcm.core.clock import Clock
from lcm.core.results import ReconciliationResult, Requeue, Success
from lcm.domain.errors import CertificateChanged, NoCml, Unreachable
from lcm.domain.launch import WorkerId
from lcm.domain.readiness import MAX_DETAIL, CmlAttempt, CmlContact
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.ports import CmlSystem, ControlPlane, Monitors
from lcm.worker_controller.running import drift, metrics, monitoring, refresh
from lcm.worker_controller.running.idle import IdleChecker
from lcm.worker_controller.running.license import LicenseRegistrar
from lcm.worker_controller.running.scale_down import ScaleDown

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
"""How often a CML that is neither adopted nor ready is tried: it may never be one."""
ATTEMPT_REPORT_SECONDS: Final = 60.0
"""How often an attempt that did not find CML ready is reported: a normal boot is not worth a write."""


@dataclass
class RunningPipeline:
    """Maintains workers whose instance runs as desired."""

    control_plane: ControlPlane
    cml: CmlSystem
    clock: Clock
    use_private_ip: bool
    wait_seconds: float
    metrics_interval_seconds: float
    count_drift: Callable[[Worker, str], None]
    monitors: Monitors | None
    licenses: LicenseRegistrar
    idle: IdleChecker | None
    scale_down: ScaleDown
    _refreshed: dict[WorkerId, datetime] = field(default_factory=dict)
    """By worker: the newest refresh request that was carried out."""
    _attempt_reported: dict[WorkerId, float] = field(default_factory=dict)
    """By worker whose CML is not ready: when an attempt was reported last, or the first was made."""

    def forget(self, worker_id: WorkerId) -> None:
        self._refreshed.pop(worker_id, None)
        self._attempt_reported.pop(worker_id, None)
        self.licenses.forget(worker_id)
        self.scale_down.forget(worker_id)
        if self.idle is not None:
            self.idle.forget(worker_id)

    def is_due(self, worker: Worker) -> bool:
        """Whether a worker without changes needs maintenance all the same."""
        if not worker.is_trusted:
            return False
        if self.monitors is not None and not self.monitors.is_monitoring(worker.id):
            return True
        return self.idle is not None and self.idle.is_due(worker)

    async def run(self, worker: Worker, instance: Instance) -> ReconciliationResult:
        """Run steps 2 to 8; the lifecycle step has handled the desired status."""
        if drift.has_new_address(worker, instance):
            self.count_drift(worker, "address_changed")
            worker = await self.control_plane.report_instance(worker, instance)
        if not worker.is_trusted:
            return await self._look_at(worker)
        if not worker.cml.is_ready:
            # Booting takes minutes on metal: refused connections, 502 and `ready: false` are normal then.
            tried_at = self.clock.now()
            worker = await self._observe_cml(worker)
            if not worker.cml.is_ready:
                if worker.cml.wait is not None:
                    await self._check_idle(worker, not_ready_at=tried_at)
                return Requeue("CML is not ready yet", self.wait_seconds)
        elif self._has_another_certificate(worker):
            with suppress(CertificateChanged):  # it is reported; the alarms of idle checks come all the same
                worker = await self._observe_cml(worker)
        else:
            worker = await self._refresh_if_requested(worker)
        await self._ensure_monitoring(worker)
        self._measure_if_due(worker)
        delay_seconds = await self.licenses.advance(worker)
        await self._check_idle(worker)
        if delay_seconds is None:
            return Success()
        return Requeue("a license operation is in progress", delay_seconds)

    async def _look_at(self, worker: Worker) -> ReconciliationResult:
        """Read what CML shows without a login, its certificate above all, for the admin who may adopt it."""
        with suppress(CertificateChanged):
            if not worker.cml.is_ready or self._has_another_certificate(worker):
                worker = await self._observe_cml(worker)
            else:
                worker = await self._refresh_if_requested(worker)
        return Success() if worker.cml.is_ready else Requeue("CML is not ready yet", LOOK_SECONDS)

    async def _check_idle(self, worker: Worker, *, not_ready_at: datetime | None = None) -> None:
        check = await self.idle.check(worker, not_ready_at=not_ready_at) if self.idle is not None else None
        await self.scale_down.consider(worker, check)

    async def _refresh_if_requested(self, worker: Worker) -> Worker:
        done_for = self._refreshed.get(worker.id)
        if not refresh.is_requested(worker, done_for=done_for, now=self.clock.now()):
            return worker
        assert worker.refresh_requested_at is not None
        self._refreshed[worker.id] = worker.refresh_requested_at
        if self.monitors is not None:
            self.monitors.request_measurement(worker.id)
        return await self._observe_cml(worker)

    def _has_another_certificate(self, worker: Worker) -> bool:
        if worker.cml.refused_certificate_sha256 is not None:
            return True
        return self.monitors is not None and self.monitors.is_certificate_refused(worker.id)

    async def _ensure_monitoring(self, worker: Worker) -> None:
        if self.monitors is None:
            return
        if not self.monitors.has_activity_log(worker.id):
            # Only the newest record has what earlier leaders reported: an older copy is refused here.
            worker = await self.control_plane.verify(worker)
        target = monitoring.target_of(worker, use_private_ip=self.use_private_ip)
        if target is not None:
            self.monitors.ensure_monitoring(target)

    def _measure_if_due(self, worker: Worker) -> None:
        if self.monitors is None:
            return
        age = self.monitors.seconds_since_measurement(worker.id)
        if metrics.is_due(age_seconds=age, interval_seconds=self.metrics_interval_seconds):
            self.monitors.request_measurement(worker.id)

    async def _observe_cml(self, worker: Worker) -> Worker:
        """Read CML's system information and report changes; an unreachable CML was ready before, or boots.

        Raises CertificateChanged, once that is reported.
        """
        host = host_of(worker, use_private_ip=self.use_private_ip)
        if host is None:
            return await self._report_attempt(worker, CmlContact.NO_ADDRESS, "the instance has no address")
        try:
            found = await self.cml.get_system_information(host, worker.cml.certificate_sha256)
        except NoCml as error:
            return await self._report_attempt(worker, CmlContact.NO_CML, str(error))
        except Unreachable as error:
            return await self._report_attempt(worker, CmlContact.NO_ANSWER, str(error))
        except CertificateChanged as error:
            shown = error.shown_sha256
            if shown is not None and shown != worker.cml.refused_certificate_sha256:
                worker = await self.control_plane.report_certificate(worker, shown)
            await self._report_attempt(worker, CmlContact.OTHER_CERTIFICATE, str(error))
            raise
        known = worker.cml.version, worker.cml.system_info
        is_changed = found.ready != worker.cml.is_ready or (
            found.ready and (found.version, found.more) != known
        )
        is_first_contact = worker.cml.certificate_sha256 is None and found.certificate_sha256 is not None
        attempt = None
        if found.ready:
            self._attempt_reported.pop(worker.id, None)
        else:
            attempt = self._due_attempt(worker, CmlContact.NOT_READY, f"CML at {host} answers ready: false")
        is_right_again = worker.cml.refused_certificate_sha256 is not None
        if not (is_changed or is_first_contact or is_right_again) and attempt is None:
            return worker
        return await self.control_plane.report_cml(
            worker,
            ready=found.ready,
            version=found.version,
            certificate_sha256=found.certificate_sha256,
            system_info=found.more,
            attempt=attempt,
        )

    async def _report_attempt(self, worker: Worker, contact: CmlContact, detail: str) -> Worker:
        log.debug("CML not reached", worker_id=worker.id, error=detail)
        attempt = self._due_attempt(worker, contact, detail)
        if attempt is None:
            return worker
        return await self.control_plane.report_cml(
            worker, ready=False, version=None, certificate_sha256=None, system_info=None, attempt=attempt
        )

    def _due_attempt(self, worker: Worker, contact: CmlContact, detail: str) -> CmlAttempt | None:
        """The attempt, if it is to be reported; one on a CML that was ready says nothing about its boot.

        Whether a CML that is not adopted ever becomes ready is no matter for an alarm.
        """
        if worker.cml.is_ready or not worker.is_trusted:
            return None
        now = self.clock.monotonic()
        if now - self._attempt_reported.setdefault(worker.id, now) < ATTEMPT_REPORT_SECONDS:
            return None
        self._attempt_reported[worker.id] = now
        return CmlAttempt(contact=contact, detail=detail[:MAX_DETAIL])
