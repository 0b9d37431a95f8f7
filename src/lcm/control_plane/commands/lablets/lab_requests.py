"""What people request of a lab: recorded here, carried out and reported by the lablet controller."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from lcm.control_plane.commands.lablets.lab_standings import Standings, count_again, note_lab, note_release
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import Preconditions
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, NotFound, UnknownReference
from lcm.domain.lablet.admission import count_labs, release_retained
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.lab_discovery import is_seen, standing_of
from lcm.domain.lablet.lab_request import refuse_request
from lcm.domain.lablet.listed_lab import AdoptedAs, LabAction, LabAdoption, LabKind, LabRequest, LeakReason
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.rest.lab_reports import LabGone, LabRequestOutcome

_REMOVED: Final = {
    None: LabletEvent.LAB_REMOVED,
    LeakReason.DUPLICATE: LabletEvent.LAB_DUPLICATE_REMOVED,
}
"""By the leak for which the sweep requested it; the others are LAB_LEAKED_REMOVED."""


async def request_discovery(
    records: Records, worker_id: str, *, by: str, preconditions: Preconditions
) -> Worker:
    """Have the lablet controller list the labs of a worker now."""
    now = records.clock.now()

    def request(worker: Worker) -> Worker:
        if not worker.is_live:
            raise Conflict(f"worker {worker.name} is {worker.status}; its labs are listed when it runs")
        return replace(worker, cml=replace(worker.cml, lab_discovery_requested_at=now))

    worker = await records.workers.change(worker_id, preconditions.guard(request))
    await records.lablet_audit.note(
        LabletEvent.LAB_DISCOVERY_REQUESTED, by=by, reason="requested", worker_id=worker_id
    )
    return worker


async def request_lab_action(
    records: Records, worker_id: str, lab_id: str, action: LabAction, *, by: str, title: str | None = None
) -> LabRecord:
    """Record what a person requests of a lab. The same request again changes nothing."""
    worker = await records.workers.get(worker_id)
    lab = await lab_as_it_stands(records, worker, lab_id)
    session = await records.sessions.find(lab.session_id) if lab.session_id is not None else None
    request = LabRequest(action=action, asked_at=records.clock.now(), by=by, title=title)
    refuse_request(lab, request, session=session, worker=worker)
    if _repeats(lab.request, request):
        return lab

    def decide(known: LabRecord | None) -> LabRecord | None:
        if known is None or known.request != lab.request:
            raise Conflict(f"lab {lab_id} changed meanwhile; read it again")
        return replace(known, kind=lab.kind, session_id=lab.session_id, leak=lab.leak, request=request)

    requested = await records.labs.revise(worker_id, lab_id, decide)
    assert requested is not None
    await note_lab(records, LabletEvent.LAB_ACTION_REQUESTED, requested, by=by, reason=str(action))
    return requested


def _repeats(known: LabRequest | None, request: LabRequest) -> bool:
    return known is not None and known.action is request.action and not known.is_over and known.leak is None


async def adopt_lab(
    records: Records,
    worker_id: str,
    lab_id: str,
    *,
    by: str,
    definition: str | None = None,
    version: str | None = None,
) -> LabRecord:
    """Keep a lab that is of no session: it is leaked no more, and a removal by the sweep is withdrawn.

    With a definition it counts as a lab of that one, which may be named, or replaced, later too.
    """
    adopted_as = await _adopted_as(records, definition, version)
    lab = await _changeable(records, worker_id, lab_id, LabAction.ADOPT, by)
    known = lab.adoption if lab.kind is LabKind.ADOPTED else None
    if known is not None and adopted_as in (None, known.definition):
        return lab
    adoption = LabAdoption(by=by, at=records.clock.now(), definition=adopted_as)
    adopted = await _record_adoption(records, lab, adoption)
    was = f"leaked, {lab.leak}" if lab.leak is not None else str(lab.kind)
    as_what = f" as a lab of {adopted_as.name} {adopted_as.version}" if adopted_as is not None else ""
    await note_lab(
        records, LabletEvent.LAB_ADOPTED, lab, by=by, reason=f"people keep it{as_what}; it was {was}"
    )
    return adopted


async def _adopted_as(records: Records, name: str | None, version: str | None) -> AdoptedAs | None:
    if name is None:
        if version is not None:
            raise UnknownReference("a version needs the name of its definition; send 'definition' too")
        return None
    definition = (await records.definitions.named(name, version)).definition
    return AdoptedAs(
        definition_id=definition.id,
        name=definition.name,
        version=definition.version,
        needs=definition.demand.needs,
    )


async def disown_lab(records: Records, worker_id: str, lab_id: str, *, by: str) -> LabRecord:
    """End an adoption: the lab is foreign or leaked again, and its ten minutes begin anew."""
    lab = await _changeable(records, worker_id, lab_id, LabAction.DISOWN, by)
    disowned = await _record_adoption(records, lab, None)
    kept_by = lab.adoption.by if lab.adoption is not None else ""
    reason = f"{kept_by} had adopted it; now it is {disowned.kind}"
    await note_lab(records, LabletEvent.LAB_DISOWNED, disowned, by=by, reason=reason)
    return disowned


async def _changeable(records: Records, worker_id: str, lab_id: str, action: LabAction, by: str) -> LabRecord:
    """Return a lab of which this is possible, or that is adopted already."""
    worker = await records.workers.get(worker_id)
    lab = await lab_as_it_stands(records, worker, lab_id)
    if action is LabAction.ADOPT and lab.kind is LabKind.ADOPTED:
        return lab
    request = LabRequest(action=action, asked_at=records.clock.now(), by=by)
    refuse_request(lab, request, session=None, worker=worker)
    return lab


async def _record_adoption(records: Records, lab: LabRecord, adoption: LabAdoption | None) -> LabRecord:
    worker = await records.workers.get(lab.worker_id)
    standings = await Standings.read(records, worker.instance.id)
    standing = await standings.of(lab.lab_id, lab.mark)

    def decide(known: LabRecord | None) -> LabRecord:
        if known is None or (known.request, known.adoption) != (lab.request, lab.adoption):
            raise Conflict(f"lab {lab.lab_id} changed meanwhile; read it again")
        changed = replace(known, adoption=adoption)
        return standing_of(changed, standing, is_full=False, now=records.clock.now())

    changed = await records.labs.revise(lab.worker_id, lab.lab_id, decide)
    assert changed is not None
    if any(each is not None and each.definition is not None for each in (lab.adoption, adoption)):
        await count_again(records, lab.worker_id)
    return changed


async def lab_as_it_stands(records: Records, worker: Worker, lab_id: str) -> LabRecord:
    """Return a lab with whose it is at this moment, not at the last listing. Raises NotFound."""
    lab = await records.labs.find(worker.id, lab_id)
    if lab is None:
        raise NotFound(f"there is no lab {lab_id!r} on this worker; list them with GET /api/labs")
    if lab.kind is None:
        return lab
    standings = await Standings.read(records, worker.instance.id)
    standing = await standings.of(lab_id, lab.mark)
    return standing_of(lab, standing, is_full=False, now=records.clock.now())


async def record_outcome(
    records: Records, worker_id: str, lab_id: str, outcome: LabRequestOutcome, *, fence: Fence
) -> LabRecord | None:
    """Record what became of a request. A report about an earlier request changes nothing."""

    def end(known: LabRecord, request: LabRequest) -> LabRecord:
        tried = replace(request, error=outcome.error, is_over=outcome.is_over)
        return replace(known, request=tried if outcome.error else None)

    return await records.labs.revise(worker_id, lab_id, _about(outcome.asked_at, end), fence=fence)


def _about(
    asked_at: datetime, decide: Callable[[LabRecord, LabRequest], LabRecord | None]
) -> Callable[[LabRecord | None], LabRecord | None]:
    def about(known: LabRecord | None) -> LabRecord | None:
        if known is None or known.request is None or known.request.asked_at != asked_at:
            return known
        return decide(known, known.request)

    return about


async def record_gone(
    records: Records, worker_id: str, lab_id: str, gone: LabGone, *, by: str, fence: Fence
) -> None:
    """Remove the record of a lab that was removed, and release the claim that waited for it.

    Audited before the record goes: a crash may repeat the entry, and never skips it. What it leaves of the
    claim the next full listings release.
    """
    worker = await records.workers.get(worker_id)
    if worker.instance.id != gone.instance_id:
        raise Conflict(f"the worker runs on instance {worker.instance.id}; observe that one")
    lab = await records.labs.find(worker_id, lab_id)
    if lab is None or lab.request is None or lab.request.asked_at != gone.asked_at:
        return
    request = lab.request
    event = _REMOVED.get(request.leak, LabletEvent.LAB_LEAKED_REMOVED)
    by = by if request.leak else request.by
    await note_lab(records, event, lab, by=by, reason=request.leak or "removed as requested")
    await records.labs.revise(worker_id, lab_id, _about(gone.asked_at, lambda *_: None), fence=fence)
    await _settle_worker(records, lab, by=by, fence=fence)


async def _settle_worker(records: Records, lab: LabRecord, *, by: str, fence: Fence) -> None:
    """Free what the lab took of its worker, and the retained claim of its session if it was the last one."""
    others = await records.labs.of(lab.worker_id)
    mark = lab.mark
    is_last = mark is not None and not is_seen(others, mark.session_id, mark.generation)
    now = records.clock.now()
    released: list[Claim] = []

    def decide(worker: Worker) -> Worker:
        left = worker
        if mark is not None and is_last:
            left = release_retained(worker, mark.session_id, generation=mark.generation, now=now)
        released[:] = [claim for claim in worker.claims if claim not in left.claims]
        return count_labs(left, others, left.claims)

    await records.workers.change(lab.worker_id, decide, fence=fence)
    for claim in released:
        await note_release(records, lab.worker_id, claim, by=by)
