"""Sets what a worker's template declares, after the template has changed."""

from msgspec.structs import replace

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.capacity import declared_by
from lcm.domain.lablet.claim import reserved_by
from lcm.domain.worker import Worker


async def recalculate_capacity(records: Records, worker_id: str, *, fence: Fence) -> Worker:
    """Take over what the template declares now; what claims take is always counted from them."""
    worker = await records.workers.get(worker_id)
    template = await records.templates.find(worker.template_name)
    if template is None:
        return worker
    return await records.workers.change(
        worker_id,
        lambda current: replace(
            current, declared_capacity=declared_by(template), reserve=reserved_by(template)
        ),
        fence=fence,
    )
