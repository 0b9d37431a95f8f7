"""The controller reports what it observed of a worker besides its status."""

from msgspec.structs import replace

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.transitions import attach_instance
from lcm.domain.worker import Worker
from lcm.rest.schemas import CmlReport, InstanceReport


async def report_instance(
    records: Records, worker_id: str, report: InstanceReport, *, fence: Fence
) -> Worker:
    """Store the present addresses of the instance."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        lambda worker: attach_instance(worker, report.instance, now=now),
        expected_version=report.expected_version,
        fence=fence,
    )


async def report_cml(records: Records, worker_id: str, report: CmlReport, *, fence: Fence) -> Worker:
    """Store whether CML answers, and what it reports. The first observed certificate is pinned."""

    def decide(worker: Worker) -> Worker:
        known = worker.cml
        reported = replace(
            known,
            is_ready=report.ready and worker.is_live,
            version=report.version or known.version,
            certificate_sha256=known.certificate_sha256 or report.certificate_sha256,
            system_info=known.system_info if report.system_info is None else report.system_info,
            health=report.health or known.health,
            license=report.license or known.license,
        )
        return replace(worker, cml=reported)

    return await records.workers.change(worker_id, decide, fence=fence)
