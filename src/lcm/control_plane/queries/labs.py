"""The labs on all workers, for people and for the lablet controller."""

from collections.abc import Iterable
from datetime import datetime

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.lab_owners import LabOwners
from lcm.domain.errors import NotFound
from lcm.domain.lablet.lab_discovery import RUNNING_STATES
from lcm.domain.lablet.lab_request import possible_requests
from lcm.domain.lablet.lab_standing import confirmed_at
from lcm.domain.lablet.listed_lab import LabKind, LeakReason
from lcm.domain.lablet.session import LabletSession
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.rest.lab_reports import ConfigsWanted, LabWork
from lcm.rest.labs import LabPage, LabView, ListedWorker


async def lab_work(records: Records, policies: Policies, owners: LabOwners) -> LabWork:
    """Return the labs of which something is requested that is not done, and where unknown labs are.

    A lab that a session has recorded is known without a listing, and an import without an answer is not.
    Workers are read only where a stop may wait for configurations.
    """
    labs, now = await records.labs.list_all(), records.clock.now()
    await owners.load()
    workers = await records.workers.list_live() if policies.idle.extract_within is not None else []
    return LabWork(
        items=[lab for lab in labs if lab.request is not None and not lab.request.is_over],
        unlisted_on=sorted(
            {lab.worker_id for lab in labs if lab.kind is None and owners.of(lab.lab_id) is None}
        ),
        configs_wanted=[
            ConfigsWanted(worker_id=worker.id, asked_at=extraction.asked_at, until=extraction.until)
            for worker in workers
            if (extraction := worker.pause.extraction) is not None and worker.pause.is_extracting(now)
        ],
    )


async def list_labs(
    records: Records,
    *,
    worker_id: str | None = None,
    kind: LabKind | None = None,
    limit: int = 100,
    after: str | None = None,
) -> LabPage:
    """Return labs by worker and title, and when the labs of these workers were listed."""
    workers = {
        worker.id: worker for worker in await records.workers.list_live() if worker_id in (None, worker.id)
    }
    if worker_id is not None and not workers:
        raise NotFound(f"there is no worker {worker_id!r}; list them with GET /api/workers")
    owners = _Owners(await records.sessions.list_all())
    found = [
        lab
        for lab in await records.labs.list_all()
        if lab.worker_id in workers and kind in (None, _kind(lab, owners.of(lab)))
    ]
    keyed = sorted((_cursor(workers[lab.worker_id], lab), lab) for lab in found)
    rest = [(key, lab) for key, lab in keyed if after is None or key > after]
    page = rest[:limit]
    return LabPage(
        items=[view_lab(lab, workers[lab.worker_id], owners.of(lab)) for _, lab in page],
        next=page[-1][0] if len(rest) > limit else None,
        workers=[
            ListedWorker(
                worker_id=worker.id,
                worker_name=worker.name,
                listed_at=worker.cml.labs.listed_at,
                is_partial=worker.cml.labs.is_partial,
            )
            for worker in sorted(workers.values(), key=lambda worker: (worker.name, worker.id))
            if worker.is_live
        ],
    )


class _Owners:
    """The sessions of labs."""

    def __init__(self, sessions: Iterable[LabletSession]) -> None:
        self._by_id = {session.id: session for session in sessions}
        self._by_lab = {
            (session.worker_id, session.lab.lab_id): session
            for session in self._by_id.values()
            if session.lab is not None and not session.is_ended
        }

    def of(self, lab: LabRecord) -> LabletSession | None:
        """Return the session that the listing names; before any listing, the one that recorded the lab."""
        if lab.kind is None:
            return self._by_lab.get((lab.worker_id, lab.lab_id))
        return self._by_id.get(lab.session_id or "")


def _kind(lab: LabRecord, session: LabletSession | None) -> LabKind | None:
    return LabKind.SESSION if lab.kind is None and session is not None else lab.kind


def view_lab(lab: LabRecord, worker: Worker, session: LabletSession | None) -> LabView:
    """Return one lab as people see it; `session` owns it, or is named by its marker."""
    is_counted = lab.node_count is not None
    return LabView(
        worker_id=worker.id,
        worker_name=worker.name,
        lab_id=lab.lab_id,
        title=lab.title,
        state=lab.state,
        kind=_kind(lab, session),
        session_id=session.id if lab.kind is None and session is not None else lab.session_id,
        definition_name=_definition_of(lab, session),
        owner=lab.owner,
        node_count=lab.node_count if is_counted else len(lab.nodes) or None,
        running_nodes=sum(node.state in RUNNING_STATES for node in lab.nodes.values()),
        tag_ports=lab.tag_ports,
        modified_at=lab.modified_at,
        first_seen_at=lab.first_seen_at,
        last_seen_at=lab.last_seen_at if lab.missing_since is not None else worker.cml.labs.listed_at,
        missing_since=lab.missing_since,
        leak=lab.leak,
        removed_from=_removed_from(lab),
        leak_kept=lab.leak_kept,
        request=lab.request,
        adoption=lab.adoption if lab.kind is LabKind.ADOPTED else None,
        possible_actions=tuple(possible_requests(lab, session, worker)),
    )


def _definition_of(lab: LabRecord, session: LabletSession | None) -> str | None:
    if lab.kind is LabKind.ADOPTED:
        adopted_as = lab.adoption.definition if lab.adoption is not None else None
        return adopted_as.name if adopted_as is not None else None
    return session.definition_name if session is not None else None


def _removed_from(lab: LabRecord) -> datetime | None:
    """When LCM removes a leaked lab, if it does and nothing changes."""
    if lab.leak_kept or lab.leak is LeakReason.RECORD_OLDER:
        return None
    return confirmed_at(lab)


def _cursor(worker: Worker, lab: LabRecord) -> str:
    """Return a cursor that sorts like the list."""
    return f"{worker.name} {worker.id} {lab.title or ''} {lab.lab_id}"
