"""The controller found instances without a record: each becomes a worker, once."""

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.addresses import require_worker_addresses
from lcm.domain.discovery import FoundInstance, KnownWorkers, imported_worker, reason_not_to_import
from lcm.domain.errors import InstanceTaken, InvalidAddress, NameTaken
from lcm.domain.launch import ENVIRONMENT_TAG, WorkerId
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.fleet import BulkImport, BulkImportResult, ImportOutcome

CREATED, CONFLICT = 201, 409


async def import_workers(
    records: Records, policies: Policies, bulk: BulkImport, *, by: str, fence: Fence
) -> BulkImportResult:
    """Import new instances; one that a record has already is a conflict of that instance alone."""
    workers = await records.workers.list_all()
    return BulkImportResult(
        items=[await _import(records, policies, found, workers, by, fence) for found in bulk.instances]
    )


async def _import(
    records: Records,
    policies: Policies,
    found: FoundInstance,
    workers: list[Worker],
    by: str,
    fence: Fence,
) -> ImportOutcome:
    instance = found.instance
    # The controller decides whether it is another fleet's: it knows which fleet it works for.
    fleet = instance.tags.get(ENVIRONMENT_TAG, "")
    refusal = reason_not_to_import(instance, KnownWorkers.of(workers), fleet)
    if refusal is None:
        try:
            require_worker_addresses(instance, policies.worker_networks)
            worker = await _add(records, found, workers, by, fence)
        except (InstanceTaken, InvalidAddress) as refused:
            refusal = str(refused)
        else:
            workers.append(worker)
            return ImportOutcome(instance_id=instance.id, status=CREATED, worker_id=worker.id)
    return ImportOutcome(instance_id=instance.id, status=CONFLICT, detail=refusal)


async def _add(
    records: Records, found: FoundInstance, workers: list[Worker], by: str, fence: Fence
) -> Worker:
    taken = {worker.name for worker in workers if worker.status is not TERMINATED}
    worker = imported_worker(
        found,
        worker_id=WorkerId(records.ids.new_id()),
        taken_names=taken,
        templates=await records.templates.list_all(),
        by=by,
        now=records.clock.now(),
    )
    try:
        return await records.workers.add(worker, fence)
    except NameTaken:
        # Another request took the name first: use the one that ends with the instance's id.
        return await _add(records, found, await records.workers.list_all(), by, fence)
