"""How people reach the labs of sessions: computed for each request, and stored nowhere."""

from datetime import datetime
from typing import Final

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.cml_access import cml_url
from lcm.control_plane.queries.lablet_sessions import sessions_of
from lcm.control_plane.records.access_logins import login_of
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict, NotReadyYet
from lcm.domain.lablet.access import GrantedPort, granted_ports, uri_of
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.lab import NOT_PROBED, LabStep, ProbedPorts
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import IN_USE, INSTANTIATING, PENDING, PENDING_SCHEDULING, SCHEDULED
from lcm.domain.lablet.topology import TopologyNode, analyse
from lcm.domain.lifecycle import DRAINING, UNKNOWN
from lcm.domain.lifecycle import RUNNING as WORKER_RUNNING
from lcm.domain.worker import Worker
from lcm.rest.lablet_access import AccessLogin, BatchAccess, PortAccess, SeatAccess, SessionAccess

_WAITS: Final = frozenset({PENDING, PENDING_SCHEDULING})
_IS_PREPARED: Final = frozenset({SCHEDULED, INSTANTIATING})
_SERVES: Final = frozenset({WORKER_RUNNING, DRAINING, UNKNOWN})
"""Statuses of a worker whose labs can be reached, as far as is known."""


class AccessReader:
    """For one request: what the sessions of a class share is read once."""

    def __init__(self, records: Records, policies: Policies) -> None:
        self._records = records
        self._policies = policies
        self._workers: dict[str, Worker | None] = {}
        self._nodes: dict[str, tuple[TopologyNode, ...]] = {}
        self._logins: dict[str, AccessLogin | None] = {}

    async def access_of(self, session: LabletSession) -> SessionAccess:
        """Return how the lab is reached now. Raises NotReadyYet or Conflict, with what to do."""
        _refuse_without_lab(session)
        lab_id, host = _place_of(session, await self._worker(session.worker_id or ""), self._policies)
        nodes = await self._nodes_of(session.lab_yaml_hash)
        login = await self._login(session.definition_id)
        granted = granted_ports(session.demand.ports, session.ports, nodes)
        ports = [_port(each, host, login, session.probed) for each in granted]
        return _view(session, lab_id, host, self._policies.cml_port, ports)

    async def _worker(self, worker_id: str) -> Worker | None:
        if worker_id not in self._workers:
            self._workers[worker_id] = await self._records.workers.find(worker_id)
        return self._workers[worker_id]

    async def _nodes_of(self, lab_yaml_hash: str) -> tuple[TopologyNode, ...]:
        if lab_yaml_hash not in self._nodes:
            text = await self._records.definitions.topology(lab_yaml_hash)
            self._nodes[lab_yaml_hash] = analyse(text).nodes
        return self._nodes[lab_yaml_hash]

    async def _login(self, definition_id: str) -> AccessLogin | None:
        if definition_id not in self._logins:
            self._logins[definition_id] = await login_of(self._records, definition_id)
        return self._logins[definition_id]


async def access_of_class(records: Records, policies: Policies, batch: LabletBatch) -> BatchAccess:
    """Return how every seat is reached now; a seat that cannot be says why."""
    reader = AccessReader(records, policies)
    newest = {
        session.batch.index: session
        for session in await sessions_of(records, batch)
        if session.batch is not None
    }
    return BatchAccess(
        id=batch.id,
        name=batch.name,
        definition_name=batch.definition.name,
        definition_version=batch.definition.version,
        timeslot=batch.timeslot,
        seats=[await _seat(reader, index, newest[index]) for index in sorted(newest)],
    )


async def _seat(reader: AccessReader, index: int, session: LabletSession) -> SeatAccess:
    access, note = None, ""
    try:
        access = await reader.access_of(session)
    except (NotReadyYet, Conflict) as refused:
        note = str(refused)
    return SeatAccess(
        seat=index + 1,
        owner_id=session.owner_id,
        session_id=session.id,
        status=session.status,
        access=access,
        note=note,
    )


def _refuse_without_lab(session: LabletSession) -> None:
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
    if session.status not in IN_USE:
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
    return SessionAccess(
        session_id=session.id,
        status=session.status,
        worker_id=session.worker_id or "",
        host=host,
        lab_id=lab_id,
        lab_url=f"{cml_url(host, cml_port)}/lab/{lab_id}",
        valid_until=session.ends_at,
        probed_at=_probed_at(session),
        ports=ports,
    )


def _probed_at(session: LabletSession) -> datetime | None:
    probe = session.steps.get(LabStep.PROBE)
    return probe.ended_at if probe is not None and session.probed != NOT_PROBED else None


def _port(granted: GrantedPort, host: str, login: AccessLogin | None, probed: ProbedPorts) -> PortAccess:
    return PortAccess(
        label=granted.label,
        node=granted.node,
        node_definition=granted.node_definition,
        kind=granted.kind,
        protocol=granted.protocol,
        host=host,
        port=granted.port,
        uri=uri_of(granted.protocol, host, granted.port, login.username if login else None),
        is_reachable=probed.says(granted.port),
        username=login.username if login else None,
        password=login.password if login else None,
    )
