"""How people reach the CML of a worker: computed for each request, without any password."""

from typing import Final

from lcm.control_plane.policies import Policies
from lcm.domain.errors import NotReadyYet
from lcm.domain.worker import Worker
from lcm.rest.schemas import CmlAccess

HTTPS: Final = 443


def cml_access(worker: Worker, policies: Policies) -> CmlAccess:
    """Return how the CML of a worker is reached now. Raises NotReadyYet."""
    host = worker.instance.address(use_private_ip=policies.gives_private_ip)
    if host is None or not worker.cml.is_ready:
        raise NotReadyYet(
            f"the CML of worker {worker.name}, which is {worker.status}, does not answer yet;"
            f" GET /api/workers/{worker.id}/explain says why"
        )
    return CmlAccess(
        worker_id=worker.id,
        host=host,
        port=policies.cml_port,
        url=cml_url(host, policies.cml_port),
        version=worker.cml.version,
        username=worker.cml.login.username if worker.cml.login else None,
        certificate_sha256=worker.cml.certificate_sha256,
    )


def cml_url(host: str, port: int) -> str:
    """Return the address of a CML in a browser."""
    at = f"[{host}]" if ":" in host else host
    return f"https://{at}" if port == HTTPS else f"https://{at}:{port}"
