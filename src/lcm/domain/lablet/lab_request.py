"""What people may request of a lab, and why not."""

from collections.abc import Sequence

from lcm.domain.errors import Conflict
from lcm.domain.lablet.listed_lab import (
    KEPT_BY_PEOPLE,
    RECORDED_ONLY,
    LabAction,
    LabKind,
    LabRequest,
)
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import IN_USE
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker


def refuse_request(
    lab: LabRecord, request: LabRequest, *, session: LabletSession | None, worker: Worker
) -> None:
    """Raise Conflict if this is not possible now; the message says what to do instead."""
    if request.action in RECORDED_ONLY:
        _refuse_recording(lab, request.action)
        return
    if not worker.is_live:
        raise Conflict(f"worker {worker.name} is {worker.status}; start it, then request the action")
    if lab.kind is None or lab.kind is LabKind.ORPHANED:
        raise Conflict("CML has not shown this lab in its last listing; request a lab discovery first")
    if lab.kind is LabKind.SESSION:
        _refuse_of_session(lab, request, session)
    removal = lab.request
    is_removed = removal is not None and removal.action is LabAction.REMOVE
    if is_removed and request.action is not LabAction.REMOVE:
        raise Conflict("the lab is being removed; nothing else can be requested of it")
    is_removal_of_kept = lab.kind in KEPT_BY_PEOPLE and request.action is LabAction.REMOVE
    if is_removal_of_kept and request.title != lab.title:
        whose = "LCM did not make" if lab.kind is LabKind.FOREIGN else "people adopted"
        raise Conflict(f"{whose} this lab; to remove it send its title, {lab.title!r}, as 'title'")


def _refuse_recording(lab: LabRecord, action: LabAction) -> None:
    if action is LabAction.DISOWN:
        if lab.kind is not LabKind.ADOPTED:
            raise Conflict("the lab is not adopted")
        return
    if lab.kind is LabKind.SESSION:
        raise Conflict(f"the lab belongs to lablet session {lab.session_id}; extend the session instead")
    if lab.kind not in (LabKind.FOREIGN, LabKind.LEAKED):
        raise Conflict("CML has not shown this lab in its last listing; request a lab discovery first")
    removal = lab.request
    if removal is not None and removal.action is LabAction.REMOVE and removal.leak is None:
        raise Conflict(f"{removal.by} requested the removal of the lab; nothing else can be requested of it")


def _refuse_of_session(lab: LabRecord, request: LabRequest, session: LabletSession | None) -> None:
    if request.action is LabAction.REMOVE:
        raise Conflict(f"the lab belongs to lablet session {lab.session_id}; end the session instead")
    if session is None or session.status not in IN_USE:
        status = session.status if session is not None else "gone"
        raise Conflict(f"its lablet session is {status}; LCM starts and stops the lab itself until it runs")


def possible_requests(lab: LabRecord, session: LabletSession | None, worker: Worker) -> Sequence[LabAction]:
    """What may be requested of the lab now, by a person with the role for it."""
    found = []
    for action in LabAction:
        request = LabRequest(action=action, asked_at=lab.updated_at, by="", title=lab.title)
        try:
            refuse_request(lab, request, session=session, worker=worker)
        except Conflict:
            continue
        found.append(action)
    return tuple(found)
