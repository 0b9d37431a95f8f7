"""The controller reports the status of a worker. When its instance is gone, so are its labs."""

import contextlib

import structlog

from lcm.control_plane.commands.clean_up import forget_worker
from lcm.control_plane.commands.detect_idle import BY
from lcm.control_plane.commands.license_worker import change_that_may_lose_an_instance
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.addresses import require_worker_addresses
from lcm.domain.errors import Conflict
from lcm.domain.idle import is_pause_overdue, with_countdown
from lcm.domain.lifecycle import (
    DRAINING,
    PENDING,
    PROVISIONING,
    RUNNING,
    STOPPED,
    STOPPING,
    TERMINATED,
    WorkerStatus,
)
from lcm.domain.requests import cancel_pause, stop_after_extraction
from lcm.domain.scaling import AuditEvent
from lcm.domain.transitions import attach_instance, move
from lcm.domain.worker import Worker
from lcm.rest.schemas import StatusReport

log = structlog.get_logger(__name__)


async def report_status(
    records: Records, policies: Policies, worker_id: str, report: StatusReport, *, by: str, fence: Fence
) -> Worker:
    """Accept the status if the transition table allows it, together with a new instance.

    A stop for an overdue pause is refused: the desired status becomes running, and idle checks start anew.
    A stop that waits for the configurations of nodes leaves the status as it is: report it again.
    Raises InvalidAddress.
    """
    if report.instance is not None:
        require_worker_addresses(report.instance, policies.worker_networks)
    before: WorkerStatus | None = None

    def decide(worker: Worker) -> Worker:
        nonlocal before
        before = worker.status
        now = records.clock.now()  # reading the record may have taken long
        reason = report.reason
        if report.status is STOPPING and not report.observed:
            if is_pause_overdue(worker, now):
                kept = cancel_pause(worker, by=BY, reason="the pause was not carried out in time", now=now)
                return with_countdown(kept, policies.idle)
            within = policies.idle.extract_within
            if within and (waiting := stop_after_extraction(worker, within, by=by, now=now)):
                return waiting
            extraction = worker.pause.extraction
            if extraction is not None and extraction.ended_at is None:
                reason = f"{reason}; configurations were not extracted in time"
        if report.instance is not None:
            worker = attach_instance(worker, report.instance, now=now)
        moved = move(worker, report.status, by=by, reason=reason, now=now, observed=report.observed)
        if moved.status is RUNNING and worker.status is not RUNNING:
            moved = with_countdown(moved, policies.idle)
        return moved

    if report.status not in (TERMINATED, PENDING):
        worker = await records.workers.change(
            worker_id, decide, expected_version=report.expected_version, fence=fence
        )
        await _audit(records, before, worker, by)
        return worker
    worker = await change_that_may_lose_an_instance(
        records, worker_id, decide, expected_version=report.expected_version, fence=fence
    )
    if worker.status in (TERMINATED, PENDING):
        await records.labs.forget_worker(worker_id)
    if worker.status is TERMINATED and worker.purge_when_terminated:
        with contextlib.suppress(Conflict):  # the next clean-up finds it
            await forget_worker(records, worker)
    return worker


async def _audit(records: Records, before: WorkerStatus | None, worker: Worker, by: str) -> None:
    """Audit that an instance was added to the fleet, or that a drain ended."""
    if before is PENDING and worker.status is PROVISIONING:
        event = AuditEvent.PROVISIONED
    elif before is DRAINING and worker.status in (STOPPING, STOPPED):
        event = AuditEvent.DRAINED
    else:
        return
    await records.audit.note(event, worker, by=by, reason=worker.status_reason)
