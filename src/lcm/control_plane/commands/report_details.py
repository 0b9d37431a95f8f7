"""The controller reports what it observed of a worker besides its status."""

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.addresses import require_worker_addresses
from lcm.domain.errors import Conflict
from lcm.domain.idle import with_countdown
from lcm.domain.observed import record_certificate, wait_for_cml
from lcm.domain.transitions import attach_instance
from lcm.domain.worker import CmlDefinitions, CmlHealth, CmlLicense, Worker
from lcm.rest.lab_reports import DefinitionsReport
from lcm.rest.schemas import CmlReport, InstanceReport


async def report_instance(
    records: Records, policies: Policies, worker_id: str, report: InstanceReport, *, fence: Fence
) -> Worker:
    """Store the present addresses of the instance. Raises InvalidAddress."""
    require_worker_addresses(report.instance, policies.worker_networks)
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        lambda worker: attach_instance(worker, report.instance, now=now),
        expected_version=report.expected_version,
        fence=fence,
    )


async def report_definitions(
    records: Records, worker_id: str, report: DefinitionsReport, *, fence: Fence
) -> Worker:
    """Store what nodes of labs can be on the worker. The same report again changes nothing."""
    found = CmlDefinitions(
        node_definitions=tuple(sorted(set(report.node_definitions))), images=tuple(sorted(set(report.images)))
    )

    def decide(worker: Worker) -> Worker:
        if worker.instance.id != report.instance_id:
            raise Conflict(f"the worker runs on instance {worker.instance.id}; read the definitions there")
        return replace(worker, cml=replace(worker.cml, definitions=found))

    return await records.workers.change(worker_id, decide, fence=fence)


async def report_cml(
    records: Records, policies: Policies, worker_id: str, report: CmlReport, *, fence: Fence
) -> Worker:
    """Store whether CML answers, and what it reports. The first observed certificate is pinned."""
    now, policy = records.clock.now(), policies.idle

    def decide(worker: Worker) -> Worker:
        if report.certificate_sha256 is not None:
            worker = record_certificate(worker, report.certificate_sha256, by=fence.id, now=now)
        known = worker.cml
        is_ready = report.ready and worker.is_live
        health, license_ = _current(report, worker)
        wait = wait_for_cml(
            worker, report.attempt, is_ready=is_ready, setting=policy.cml_ready_within, now=now
        )
        reported = replace(
            known,
            is_ready=is_ready,
            wait=wait,
            version=report.version or known.version,
            system_info=known.system_info if report.system_info is None else report.system_info,
            health=health or known.health,
            license=license_ or known.license,
        )
        worker = replace(worker, cml=reported)
        return worker if wait == known.wait else with_countdown(worker, policy)

    return await records.workers.change(worker_id, decide, fence=fence)


def _current(report: CmlReport, worker: Worker) -> tuple[CmlHealth | None, CmlLicense | None]:
    """Return health and license of a report, without what CML said of its license before that changed.

    A report may be read before a registration and arrive after it: sessions would be refused until the next.
    """
    health, known = report.health, worker.cml.health
    if report.license_changed_at == worker.license.changed_at:
        return health, report.license
    if health is not None:
        health = replace(health, is_licensed=known.is_licensed if known is not None else None)
    return health, None
