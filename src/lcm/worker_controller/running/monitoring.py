"""Step 4: which CML server to monitor."""

from lcm.cml.sessions import server_of
from lcm.domain.worker import Worker
from lcm.worker_controller.ports import MonitorTarget, ReportedActivity


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
