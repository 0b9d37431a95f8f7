"""The scheduler reports why sessions wait and which worker each counts on."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound
from lcm.domain.lablet.admission import nominate_worker
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import nominate, wait
from lcm.rest.lablets import Waiting


async def report_waiting(records: Records, items: Sequence[Waiting], *, by: str, fence: Fence) -> None:
    """Record the reasons that are new. A session that is placed or ended meanwhile is left out.

    A worker learns of its nominations after the sessions do; a crash between is repaired by the next report.
    """
    await records.epochs.require_newest(fence)
    expected: dict[str, dict[str, Waiting]] = {}
    dropped: dict[str, set[str]] = {}
    for item in items:
        before = await records.sessions.find(item.session_id)
        if before is None:
            continue
        try:
            after = await _record(records, item, fence)
        except (Conflict, NotFound):
            continue
        if before.nominated is not None and before.nominated.worker_id != (
            after.nominated and after.nominated.worker_id
        ):
            dropped.setdefault(before.nominated.worker_id, set()).add(item.session_id)
        if after.nominated is not None:
            expected.setdefault(after.nominated.worker_id, {})[item.session_id] = item
        await _audit(records, before, after, by)
    for worker_id in sorted(expected.keys() | dropped.keys()):
        moments = {
            session_id: item.nominated.ready_at
            for session_id, item in expected.get(worker_id, {}).items()
            if item.nominated is not None
        }
        await _nominate(records, worker_id, moments, frozenset(dropped.get(worker_id, ())), fence)


async def _nominate(
    records: Records, worker_id: str, expected: Mapping[str, datetime], dropped: frozenset[str], fence: Fence
) -> None:
    try:
        await records.workers.change(
            worker_id, lambda worker: nominate_worker(worker, expected, dropped), fence=fence
        )
    except (Conflict, NotFound):
        return  # the worker is going; the next cycle nominates another


async def _record(records: Records, item: Waiting, fence: Fence) -> LabletSession:
    now = records.clock.now()
    return await records.sessions.change(
        item.session_id,
        lambda current: nominate(wait(current, item.code, item.text, now=now), item.nominated, now=now),
        fence=fence,
    )


async def _audit(records: Records, before: LabletSession, after: LabletSession, by: str) -> None:
    if after.waits_for is not None and (before.waits_for and before.waits_for.code) != after.waits_for.code:
        await records.lablet_audit.note(
            LabletEvent.PLACEMENT_WAITING, by=by, reason=after.waits_for.text, session=after
        )
    worker_id = after.nominated.worker_id if after.nominated else None
    if worker_id is not None and worker_id != (before.nominated and before.nominated.worker_id):
        await records.lablet_audit.note(
            LabletEvent.WORKER_NOMINATED,
            by=by,
            reason=after.waits_for.text if after.waits_for else "",
            session=after,
            worker_id=worker_id,
        )
