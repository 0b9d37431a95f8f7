"""Step 4: which CML server to monitor."""

from lcm.domain.worker import Worker
from lcm.worker_controller.ports import CmlServer, MonitorTarget, ReportedActivity


def target_of(worker: Worker, *, use_private_ip: bool) -> MonitorTarget | None:
    """The server to monitor; None while CML is not ready or has no address."""
    server = server_of(worker, use_private_ip=use_private_ip)
    if server is None or not worker.cml.is_ready:
        return None
    return MonitorTarget(
        server=server,
        cml_version=worker.cml.version,
        reported=ReportedActivity(
            worker.activity.listed_since or worker.created_at, worker.activity.recent_events
        ),
    )


def server_of(worker: Worker, *, use_private_ip: bool) -> CmlServer | None:
    host = host_of(worker, use_private_ip=use_private_ip)
    if host is None:
        return None
    return CmlServer(
        worker_id=worker.id,
        instance_id=worker.instance.id,
        host=host,
        certificate_sha256=worker.cml.certificate_sha256,
        login=worker.cml.login,
    )


def host_of(worker: Worker, *, use_private_ip: bool) -> str | None:
    """The address of its CML."""
    if use_private_ip:
        return worker.instance.private_ip
    return worker.instance.public_ip or worker.instance.private_ip
