"""What a running worker gets in every pass: addresses recorded, its CML found ready, then watched."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from lcm.core.results import ReconciliationResult, Requeue, Success
from lcm.domain.errors import Unreachable
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.idling import IdleKeeper
from lcm.worker_controller.licensing import LicenseKeeper
from lcm.worker_controller.ports import CmlSystem, ControlPlane, Monitors, MonitorTarget

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Tender:
    """Looks after workers whose instance runs as wanted."""

    control_plane: ControlPlane
    cml: CmlSystem
    use_private_ip: bool
    wait_seconds: float
    count_drift: Callable[[Worker, str], None]
    monitors: Monitors | None
    licenses: LicenseKeeper
    idle: IdleKeeper | None

    async def tend(self, worker: Worker, instance: Instance) -> ReconciliationResult:
        if (worker.public_ip, worker.private_ip) != (instance.public_ip, instance.private_ip):
            self.count_drift(worker, "address_changed")
            worker = await self.control_plane.report_instance(worker, instance)
        if not worker.cml_ready:
            return await self._look_for_cml(worker)
        self._ensure_monitor(worker)
        look_again = await self.licenses.look_after(worker)
        if self.idle is not None:
            await self.idle.look_after(worker)
        return Success() if look_again is None else Requeue("a license operation goes on", look_again)

    def _ensure_monitor(self, worker: Worker) -> None:
        host = host_of(worker, use_private_ip=self.use_private_ip)
        if self.monitors is not None and host is not None:
            self.monitors.ensure_monitoring(
                MonitorTarget(
                    worker_id=worker.id,
                    instance_id=worker.ec2_instance_id,
                    host=host,
                    certificate_sha256=worker.cml_certificate_sha256,
                    cml_version=worker.cml_version,
                )
            )

    async def _look_for_cml(self, worker: Worker) -> ReconciliationResult:
        """Booting takes minutes on metal: refused, 502 and `ready: false` are all part of it."""
        host = host_of(worker, use_private_ip=self.use_private_ip)
        if host is None:
            return Requeue("no address to reach CML at", self.wait_seconds)
        try:
            told = await self.cml.get_system_information(host, worker.cml_certificate_sha256)
        except Unreachable as error:
            log.debug("CML not reached", worker_id=worker.id, error=str(error))
            return Requeue("CML is booting", self.wait_seconds)
        if told.ready or worker.cml_certificate_sha256 is None:
            worker = await self.control_plane.report_cml(
                worker, ready=told.ready, version=told.version, certificate_sha256=told.certificate_sha256
            )
        if not worker.cml_ready:
            return Requeue("CML is not ready yet", self.wait_seconds)
        self._ensure_monitor(worker)
        return Success()


def host_of(worker: Worker, *, use_private_ip: bool) -> str | None:
    """Where its CML is reached."""
    if use_private_ip:
        return worker.private_ip
    return worker.public_ip or worker.private_ip
