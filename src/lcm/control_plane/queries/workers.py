"""Lists of workers, for people and for controllers."""

from collections.abc import Collection

import msgspec

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.worker_views import WorkerViews
from lcm.domain.lifecycle import TERMINATED, WorkerStatus
from lcm.domain.worker import Worker


class EncodedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A `WorkerPage` whose views are encoded already."""

    items: list[msgspec.Raw]
    next: str | None


async def list_workers(
    records: Records,
    *,
    statuses: Collection[WorkerStatus] = (),
    aws_region: str | None = None,
    include_terminated: bool = False,
) -> list[Worker]:
    """Return workers by name; terminated ones only on request."""
    list_wanted = (
        records.workers.list_all
        if include_terminated or TERMINATED in statuses
        else records.workers.list_live
    )
    workers = [
        worker
        for worker in await list_wanted()
        if (not statuses or worker.status in statuses)
        and (aws_region is None or worker.aws_region == aws_region)
    ]
    return sorted(workers, key=lambda worker: (worker.name, worker.id))


def page_of_workers(
    workers: list[Worker], views: WorkerViews, *, limit: int, after: str | None
) -> EncodedPage:
    """Return the page of workers after the cursor of the previous page."""
    if after is not None:
        workers = [worker for worker in workers if _cursor(worker) > after]
    page = workers[:limit]
    rest = _cursor(page[-1]) if len(workers) > limit else None
    return EncodedPage(items=[views.of(worker) for worker in page], next=rest)


def _cursor(worker: Worker) -> str:
    """Return a cursor that sorts like the list; names cannot contain the separator."""
    return f"{worker.name} {worker.id}"
