"""A person accepts the certificate that a worker's CML presents in place of the pinned one."""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain import requests
from lcm.domain.worker import Worker


async def accept_certificate(
    records: Records,
    worker_id: str,
    sha256: str,
    *,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Pin this certificate; it must be the one that was refused last."""
    now = records.clock.now()
    return await records.workers.change(
        worker_id,
        preconditions.guard(lambda worker: requests.accept_certificate(worker, sha256, by=by, now=now)),
    )
