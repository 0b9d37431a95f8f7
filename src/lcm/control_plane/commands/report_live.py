"""The controller reports the telemetry of running workers: load, labs, activity.

All reports of an interval are one request. What must be kept becomes one compare-and-set per lab and per
worker, all in one commit of the store; samples only go to the metrics cache. Sending the same reports again
changes nothing.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.commands.detect_idle import BY
from lcm.control_plane.commands.lablets.lab_standings import count_again
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.idle import with_countdown
from lcm.domain.lablet.listed_lab import LabAction, LabKind
from lcm.domain.lablet.own_actions import SLACK, is_own_action
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.observed import record_activity, record_connection
from lcm.domain.requests import cancel_pause
from lcm.domain.telemetry import ActivityEvent, ActivityMark, LabChange, LabStats, MonitorState, Sample
from lcm.domain.worker import Worker
from lcm.rest.schemas import ActivityReport, LiveReceipt, LiveReports, WebSocketReport


async def report_live(
    records: Records, caches: Caches, policies: Policies, reports: LiveReports, *, fence: Fence
) -> LiveReceipt:
    """Accept the reports about running workers; drop and count the others."""
    await records.epochs.require_newest(fence)
    await caches.worker_cache.load()
    accepted = await _keep(records, caches, policies, reports, fence)
    metrics, now = caches.metrics, records.clock.now()
    taken = sum([metrics.take_sample(_by_now(sample, now)) for sample in reports.samples])
    accepted += metrics.count("sample", accepted=taken, of=len(reports.samples))
    taken = sum([metrics.take_lab_stats(stats) for stats in reports.lab_stats])
    accepted += metrics.count("lab_stats", accepted=taken, of=len(reports.lab_stats))
    everything = (
        len(reports.samples) + len(reports.lab_stats) + len(reports.lab_changes) + len(reports.activity)
    )
    return LiveReceipt(accepted=accepted, dropped=everything - accepted)


async def report_connection(
    records: Records, worker_id: str, report: WebSocketReport, *, fence: Fence
) -> Worker:
    """Store the state of the websocket to a worker: `connected` decides, `status` gives detail."""
    status: MonitorState = report.status
    if report.connected:
        status = MonitorState.CONNECTED
    elif status is MonitorState.CONNECTED:
        status = MonitorState.DISCONNECTED
    at = (report.connected_at if report.connected else report.disconnected_at) or records.clock.now()

    def decide(worker: Worker) -> Worker:
        if worker.status is TERMINATED:
            return worker  # a late disconnect of an instance that was terminated outside LCM
        return record_connection(
            worker, status, reason=report.reason[:200], at=at, mark=_mark(report.stream, report.sequence)
        )

    return await records.workers.change(worker_id, decide, fence=fence)


async def request_lab_discovery(records: Records, worker_id: str, *, fence: Fence) -> Worker:
    """Request a discovery of all labs on this worker."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        lambda worker: replace(worker, cml=replace(worker.cml, lab_discovery_requested_at=now)),
        fence=fence,
    )


async def _keep(
    records: Records, caches: Caches, policies: Policies, reports: LiveReports, fence: Fence
) -> int:
    """Write what must not be lost, all at once; return how many reports that were."""
    unknown = await _of_unknown_labs(records, caches, reports)
    shared = await _with_labs_of_no_session(records, reports.lab_changes)
    writes: list[Coroutine[Any, Any, int]] = [
        *(_keep_lab(records, caches, changes, fence) for changes in _by_lab(reports.lab_changes)),
        *(_add_lab(records, stats, fence) for stats in unknown),
        *(
            _keep_activity(records, caches, policies, of_one, fence)
            for of_one in _by_worker(reports.activity)
        ),
        *(
            _keep_labs_count(records, sample.worker_id, sample.labs_count, fence)
            for sample in _with_another_labs_count(caches, reports.samples)
        ),
    ]
    kept = sum(await _all(writes)) if writes else 0
    await _all(_keep_foreign_load(records, caches, worker_id, fence) for worker_id in shared)
    return kept


def _by_now(sample: Sample, now: datetime) -> Sample:
    """Date a sample of a clock that is ahead to now, so that later samples are not older than it."""
    return sample if sample.collected_at <= now else replace(sample, collected_at=now)


def _by_lab(changes: Iterable[LabChange]) -> list[list[LabChange]]:
    """Group the changes by lab, in the order of the report."""

    def lab(change: LabChange) -> tuple[str, str]:
        return change.worker_id, change.lab_id

    return [list(of_one) for _, of_one in groupby(sorted(changes, key=lab), key=lab)]


def _by_worker(reports: Iterable[ActivityReport]) -> list[list[ActivityReport]]:
    """Group the reports by worker, in their order: a later one covers the earlier ones."""

    def worker(report: ActivityReport) -> str:
        return report.worker_id

    return [list(of_one) for _, of_one in groupby(sorted(reports, key=worker), key=worker)]


def _with_another_labs_count(caches: Caches, samples: Iterable[Sample]) -> Iterable[Sample]:
    newest: dict[str, Sample] = {}
    for sample in samples:
        known = caches.worker_cache.get(sample.worker_id)
        if sample.labs_count is not None and known is not None and known.is_live:
            if sample.labs_count != known.labs_count:
                newest[sample.worker_id] = sample
            else:
                newest.pop(sample.worker_id, None)
    return newest.values()


async def _keep_lab(records: Records, caches: Caches, changes: list[LabChange], fence: Fence) -> int:
    worker_id, lab_id = changes[0].worker_id, changes[0].lab_id
    is_accepted = caches.worker_cache.is_live(worker_id) and await records.labs.change(
        worker_id, lab_id, changes, fence=fence
    )
    accepted = len(changes) if is_accepted else 0
    return caches.metrics.count("lab_change", accepted=accepted, of=len(changes))


async def _with_labs_of_no_session(records: Records, changes: Iterable[LabChange]) -> list[str]:
    """Return the workers on which a lab changes that takes room without a claim."""
    listed = {
        change.worker_id
        for change in changes
        if (lab := await records.labs.find(change.worker_id, change.lab_id)) is not None
        and lab.kind not in (None, LabKind.SESSION)
    }
    return sorted(listed)


async def _keep_foreign_load(records: Records, caches: Caches, worker_id: str, fence: Fence) -> int:
    """Give room back, or take it, as soon as labs of no session stop or start.

    The next listing does the same if this write is lost.
    """
    if caches.worker_cache.is_live(worker_id):
        with suppress(NotFound, Conflict):
            await count_again(records, worker_id, fence=fence)
    return 0


async def _of_unknown_labs(records: Records, caches: Caches, reports: LiveReports) -> list[LabStats]:
    """Return the stats of labs without a record; each proves that lab only."""
    changed = {(change.worker_id, change.lab_id) for change in reports.lab_changes}
    unknown = await records.labs.unknown(reports.lab_stats) if reports.lab_stats else []
    return [
        stats
        for stats in unknown
        if (stats.worker_id, stats.lab_id) not in changed and caches.worker_cache.is_live(stats.worker_id)
    ]


async def _add_lab(records: Records, stats: LabStats, fence: Fence) -> int:
    await records.labs.add_discovered(stats.worker_id, stats.lab_id, at=stats.collected_at, fence=fence)
    return 0


async def _keep_activity(
    records: Records, caches: Caches, policies: Policies, reports: list[ActivityReport], fence: Fence
) -> int:
    """Store activity, also of a worker that is being stopped: it may come just in time to cancel a pause."""
    worker_id = reports[0].worker_id
    if caches.worker_cache.get(worker_id) is None:
        return caches.metrics.count("activity", accepted=0, of=len(reports))
    now = records.clock.now()
    own = await _own_actions(records, caches, reports)

    def decide(worker: Worker) -> Worker:
        if worker.status is TERMINATED:
            return worker
        noted = worker
        for report in reports:
            noted = record_activity(
                noted,
                report.activity_events,
                mark=_mark(report.stream, report.last_sequence),
                now=now,
                keep=policies.activity_events_kept,
                own=own,
            )
        if noted.activity.last_at == worker.activity.last_at:
            return noted
        noted = cancel_pause(noted, by=BY, reason="used after the pause was decided", now=now)
        return with_countdown(noted, policies.idle)

    # A worker that is gone but still in the cache must not fail all other reports.
    accepted = 0
    with suppress(NotFound):
        worker = await records.workers.change(worker_id, decide, fence=fence)
        accepted = len(reports) if worker.status is not TERMINATED else 0
    return caches.metrics.count("activity", accepted=accepted, of=len(reports))


async def _own_actions(
    records: Records, caches: Caches, reports: list[ActivityReport]
) -> frozenset[ActivityEvent]:
    """Return what LCM itself did: in sessions' labs that it starts or stops, and in labs that it removes."""
    await caches.lab_owners.load()
    worker = await records.workers.find(reports[0].worker_id)
    came_up_at = worker.came_up_at if worker is not None else None
    return frozenset(
        [
            event
            for report in reports
            for event in report.activity_events
            if await _is_own(records, caches, report.worker_id, event, came_up_at)
        ]
    )


async def _is_own(
    records: Records, caches: Caches, worker_id: str, event: ActivityEvent, came_up_at: datetime | None
) -> bool:
    if event.lab_id is None:
        return False
    session = caches.lab_owners.of(event.lab_id)
    if session is not None and is_own_action(session, event.at, worker_came_up_at=came_up_at):
        return True
    lab = await records.labs.find(worker_id, event.lab_id)
    if lab is not None and lab.request is not None and lab.request.action is LabAction.REMOVE:
        return True
    removed_from = records.labs.removal_requested_at(worker_id, event.lab_id)
    return removed_from is not None and event.at >= removed_from - SLACK


def _mark(stream: str, sequence: int) -> ActivityMark | None:
    return ActivityMark(stream=stream, last_sequence=sequence) if stream else None


async def _keep_labs_count(records: Records, worker_id: str, labs_count: int | None, fence: Fence) -> int:
    def decide(worker: Worker) -> Worker:
        return replace(worker, cml=replace(worker.cml, labs_count=labs_count)) if worker.is_live else worker

    with suppress(NotFound):
        await records.workers.change(worker_id, decide, fence=fence)
    return 0


async def _all(writes: Iterable[Coroutine[Any, Any, int]]) -> list[int]:
    """Run the writes together, so that one flush to disk serves all; raise the first failure."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(write) for write in writes]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in running]
