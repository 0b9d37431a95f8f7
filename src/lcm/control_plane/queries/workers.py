"""Lists of workers, for people and for controllers."""

from collections.abc import Collection

from lcm.control_plane.records.groups import Records
from lcm.domain.lifecycle import TERMINATED, WorkerStatus
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerPage, WorkerView


async def list_workers(
    records: Records,
    *,
    statuses: Collection[WorkerStatus] = (),
    aws_region: str | None = None,
    include_terminated: bool = False,
) -> list[Worker]:
    """Return workers by name; terminated ones only on request."""
    workers = [
        worker
        for worker in await records.workers.list_all()
        if (include_terminated or worker.status is not TERMINATED or TERMINATED in statuses)
        and (not statuses or worker.status in statuses)
        and (aws_region is None or worker.aws_region == aws_region)
    ]
    return sorted(workers, key=lambda worker: (worker.name, worker.id))


def page_of_workers(workers: list[Worker], *, limit: int, after: str | None) -> WorkerPage:
    """Return the page of workers after the cursor of the previous page."""
    if after is not None:
        workers = [worker for worker in workers if _cursor(worker) > after]
    page = workers[:limit]
    rest = _cursor(page[-1]) if len(workers) > limit else None
    return WorkerPage(items=[WorkerView.of(worker) for worker in page], next=rest)


def _cursor(worker: Worker) -> str:
    """Return a cursor that sorts like the list; names cannot contain the separator."""
    return f"{worker.name} {worker.id}"
