"""The controller found machines that are not in the records: make each of them a worker, once."""

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Fence
from lcm.domain.discovery import FoundInstance, KnownWorkers, imported_worker, reason_not_to_import
from lcm.domain.errors import InstanceTaken, NameTaken
from lcm.domain.launch import ENVIRONMENT_TAG, WorkerId
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.fleet import BulkImport, BulkImportResult, ImportOutcome

CREATED, CONFLICT = 201, 409


async def import_workers(
    control_plane: ControlPlane, bulk: BulkImport, *, by: str, fence: Fence
) -> BulkImportResult:
    """Import what is new; what a record has already is a conflict of that machine alone."""
    workers = await control_plane.workers.list_all()
    return BulkImportResult(
        items=[await _import(control_plane, found, workers, by, fence) for found in bulk.instances]
    )


async def _import(
    control_plane: ControlPlane, found: FoundInstance, workers: list[Worker], by: str, fence: Fence
) -> ImportOutcome:
    instance = found.instance
    # Whether it is another fleet's is for the controller to say, who knows which fleet it works for.
    fleet = instance.tags.get(ENVIRONMENT_TAG, "")
    refusal = reason_not_to_import(instance, KnownWorkers.of(workers), fleet)
    if refusal is None:
        try:
            worker = await _add(control_plane, found, workers, by, fence)
        except InstanceTaken as taken:
            refusal = str(taken)
        else:
            workers.append(worker)
            return ImportOutcome(instance_id=instance.id, status=CREATED, worker_id=worker.id)
    return ImportOutcome(instance_id=instance.id, status=CONFLICT, detail=refusal)


async def _add(
    control_plane: ControlPlane, found: FoundInstance, workers: list[Worker], by: str, fence: Fence
) -> Worker:
    taken = {worker.name for worker in workers if worker.status is not TERMINATED}
    worker = imported_worker(
        found,
        worker_id=WorkerId(control_plane.ids.new_id()),
        taken_names=taken,
        templates=await control_plane.templates.list_all(),
        by=by,
        now=control_plane.clock.now(),
    )
    try:
        return await control_plane.workers.add(worker, fence)
    except NameTaken:
        # Somebody was quicker with the name: take the one that ends with the instance's id.
        return await _add(control_plane, found, await control_plane.workers.list_all(), by, fence)
