"""A stop waits until the lablet controller has extracted the configurations of nodes, at most so long."""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.requests import end_extraction
from lcm.domain.worker import Worker
from lcm.rest.lab_reports import ConfigsExtracted


async def report_configs(
    records: Records, worker_id: str, report: ConfigsExtracted, *, by: str, fence: Fence
) -> Worker:
    """Record what was extracted: the stop goes on. A report about an earlier request changes nothing."""
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        extraction = worker.pause.extraction
        if extraction is None or extraction.asked_at != report.asked_at or extraction.ended_at is not None:
            return worker
        return end_extraction(worker, extracted=report.extracted, missed=report.missed, by=by, now=now)

    return await records.workers.change(worker_id, decide, fence=fence)
