"""How a person reaches the lab of a session: computed for each request, and stored nowhere."""

from typing import Final

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.access_logins import login_of
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict, NotReadyYet
from lcm.domain.lablet.access import GrantedPort, granted_ports, uri_of
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import INSTANTIATING, PENDING, PENDING_SCHEDULING, READY, RUNNING, SCHEDULED
from lcm.domain.lablet.topology import analyse
from lcm.domain.lifecycle import DRAINING, UNKNOWN
from lcm.domain.lifecycle import RUNNING as WORKER_RUNNING
from lcm.domain.worker import Worker
from lcm.rest.lablet_access import AccessLogin, PortAccess, SessionAccess

_WAITS: Final = frozenset({PENDING, PENDING_SCHEDULING})
_IS_PREPARED: Final = frozenset({SCHEDULED, INSTANTIATING})
_SERVES: Final = frozenset({WORKER_RUNNING, DRAINING, UNKNOWN})
"""Statuses of a worker whose labs can be reached, as far as is known."""


async def access_of(records: Records, policies: Policies, session: LabletSession) -> SessionAccess:
    """Return how the lab is reached now. Raises NotReadyYet or Conflict, with what to do."""
    refuse_without_lab(session)
    worker = await records.workers.find(session.worker_id or "")
    lab_id, host = _place_of(session, worker, policies)
    topology = analyse(await records.definitions.topology(session.lab_yaml_hash))
    granted = granted_ports(session.demand.ports, session.ports, topology.nodes)
    login = await login_of(records, session.definition_id)
    return _view(session, lab_id, host, policies.cml_port, [_port(each, host, login) for each in granted])


def refuse_without_lab(session: LabletSession) -> None:
    """Raise unless the session is READY or RUNNING."""
    if session.status in _WAITS:
        raise NotReadyYet(
            f"the session is {session.status}; GET /api/lablet-sessions/{session.id}/explain says why it"
            " waits and when it gets a worker"
        )
    if session.status in _IS_PREPARED:
        raise NotReadyYet(
            f"the session is {session.status}; ask again when it is ready, as"
            f" GET /api/lablet-sessions/{session.id} shows"
        )
    if session.status not in (READY, RUNNING):
        raise Conflict(f"the session is {session.status} and its lab is no longer for use; create another")


def _place_of(session: LabletSession, worker: Worker | None, policies: Policies) -> tuple[str, str]:
    """Return the id of the lab and the address of its worker."""
    lab_id = session.lab.lab_id if session.lab is not None else None
    if worker is None or session.lab is None or lab_id is None:
        raise NotReadyYet("the worker of the session is gone; ask again when the session has another")
    if worker.status not in _SERVES or worker.instance.id != session.lab.instance_id:
        raise NotReadyYet(f"worker {worker.name} is {worker.status}; ask again when it runs the lab")
    host = worker.instance.address(use_private_ip=policies.gives_private_ip)
    if host is None:
        raise NotReadyYet(f"worker {worker.name} has no address yet; ask again in a minute")
    return lab_id, host


def _view(
    session: LabletSession, lab_id: str, host: str, cml_port: int, ports: list[PortAccess]
) -> SessionAccess:
    at = f"[{host}]" if ":" in host else host
    server = at if cml_port == 443 else f"{at}:{cml_port}"
    return SessionAccess(
        session_id=session.id,
        status=session.status,
        worker_id=session.worker_id or "",
        host=host,
        lab_id=lab_id,
        lab_url=f"https://{server}/lab/{lab_id}",
        valid_until=session.ends_at,
        ports=ports,
    )


def _port(granted: GrantedPort, host: str, login: AccessLogin | None) -> PortAccess:
    return PortAccess(
        label=granted.label,
        node=granted.node,
        node_definition=granted.node_definition,
        kind=granted.kind,
        protocol=granted.protocol,
        host=host,
        port=granted.port,
        uri=uri_of(granted.protocol, host, granted.port, login.username if login else None),
        username=login.username if login else None,
        password=login.password if login else None,
    )
