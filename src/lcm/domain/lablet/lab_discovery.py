"""The record of a lab after a listing, as pure functions for a compare-and-set."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from lcm.domain.capacity import Capacity, largest, total
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.lab_standing import (
    ADOPTED,
    MISSING_FOR,
    LeakPolicy,
    Standing,
    is_leak_confirmed,
    why_kept,
)
from lcm.domain.lablet.listed_lab import (
    LabAction,
    LabContents,
    LabKind,
    LabRequest,
    LabSummary,
    ListedLab,
)
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabNode, LabRecord

RUNNING_STATES: Final = frozenset({"QUEUED", "STARTED", "BOOTED"})
LEAK_SWEEP: Final = "leak sweep"


def listed(
    record: LabRecord | None,
    lab: ListedLab,
    standing: Standing,
    *,
    worker_id: WorkerId,
    is_full: bool,
    taken_at: datetime,
    now: datetime,
) -> LabRecord:
    """The record of a lab that a listing shows. What the live feed reported later is kept."""
    known = record or LabRecord(worker_id=worker_id, lab_id=lab.lab_id, updated_at=taken_at)
    if taken_at >= known.updated_at and (known.title, known.state) != (lab.title, lab.state):
        known = replace(known, title=lab.title, state=lab.state, updated_at=taken_at)
    seen = replace(
        known,
        discovery_wanted=False,
        owner=lab.owner,
        node_count=lab.node_count,
        modified_at=lab.modified_at,
        mark=lab.mark,
        first_seen_at=known.first_seen_at or now,
        last_seen_at=None,
        missing_since=None,
    )
    if lab.contents is not None:
        seen = _with_contents(seen, lab.contents, taken_at)
    return standing_of(seen, standing, is_full=is_full, now=now)


def _with_contents(record: LabRecord, contents: LabContents, taken_at: datetime) -> LabRecord:
    nodes = {}
    for node in contents.nodes:
        known = record.nodes.get(node.id)
        is_newer = known is None or taken_at >= known.updated_at
        nodes[node.id] = LabNode(
            label=node.label,
            state=node.state if known is None or is_newer else known.state,
            cpu=node.cpu,
            memory_gb=node.memory_gb,
            x=node.x,
            y=node.y,
            updated_at=taken_at if known is None or is_newer else known.updated_at,
        )
    return replace(record, nodes=nodes, tag_ports=tuple(sorted(set(contents.tag_ports))))


def standing_of(record: LabRecord, standing: Standing, *, is_full: bool, now: datetime) -> LabRecord:
    """The record with whose it is. Only full listings count for a lab that is leaked.

    An adopted lab is kept whatever its marker says; only a session that lives counts more.
    """
    if record.adoption is not None and standing.kind is not LabKind.SESSION:
        standing = ADOPTED
    is_leaked = standing.kind is LabKind.LEAKED
    since = record.leaked_since if record.leak is standing.leak else None
    return replace(
        record,
        kind=standing.kind,
        session_id=standing.session_id,
        leak=standing.leak,
        leaked_since=(since or (now if is_full else None)) if is_leaked else None,
        leak_kept=record.leak_kept if is_leaked else "",
        request=None if _is_of_sweep(record.request) and not is_leaked else record.request,
    )


def _is_of_sweep(request: LabRequest | None) -> bool:
    return request is not None and request.leak is not None


def swept(record: LabRecord, of_worker: Iterable[LabRecord], policy: LeakPolicy, now: datetime) -> LabRecord:
    """The record of a lab that a full listing shows leaked: its removal is requested, or why it is not.

    A removal that is not right any more is withdrawn; what a person requested stays.
    """
    if not is_leak_confirmed(record, now):
        return record
    kept = why_kept(record, of_worker, policy)
    if kept:
        request = None if _is_of_sweep(record.request) else record.request
        return replace(record, leak_kept=kept, request=request)
    if record.request is not None and not record.request.is_over:
        return replace(record, leak_kept="")
    removal = LabRequest(action=LabAction.REMOVE, asked_at=now, by=LEAK_SWEEP, leak=record.leak)
    return replace(record, leak_kept="", request=removal)


def unlisted(
    record: LabRecord, *, taken_at: datetime, last_listed_at: datetime | None, is_owned: bool, now: datetime
) -> LabRecord | None:
    """The record of a lab that a full listing lacks; None if that proves that it is gone.

    One listing proves nothing: the lab may have been made while it was taken. `is_owned`: a live session has
    recorded the lab, so that its record is kept until the session has ended.
    """
    if record.first_seen_at is None and record.updated_at > taken_at:
        return record
    if record.missing_since is None:
        last_seen_at = record.last_seen_at or last_listed_at or record.updated_at
        return replace(record, missing_since=now, last_seen_at=last_seen_at, leaked_since=None)
    if now - record.missing_since < MISSING_FOR:
        return record
    return replace(record, kind=LabKind.ORPHANED) if is_owned else None


def summarize(
    labs: Iterable[LabRecord], claims: Iterable[Claim], *, listed_at: datetime | None, is_partial: bool
) -> LabSummary:
    """What the labs that hold no claim take of their worker."""
    claiming = {claim.session_id for claim in claims}
    others = [lab for lab in labs if lab.kind is not None and lab.session_id not in claiming]
    return LabSummary(
        listed_at=listed_at,
        is_partial=is_partial,
        foreign_ports=tuple(sorted({port for lab in others for port in lab.tag_ports})),
        foreign_load=_load(others),
    )


def _load(labs: Iterable[LabRecord]) -> Capacity:
    taken = total(_load_of(lab) for lab in labs)
    return replace(taken, cpu=round(taken.cpu, 3), memory_gb=round(taken.memory_gb, 3))


def _load_of(lab: LabRecord) -> Capacity:
    """What its running nodes take; adopted as a lab of a definition, at least what that one needs."""
    nodes = [node for node in lab.nodes.values() if node.state in RUNNING_STATES]
    running = Capacity(
        cpu=sum(node.cpu for node in nodes),
        memory_gb=sum(node.memory_gb for node in nodes),
        nodes=float(len(nodes)),
    )
    kept = lab.adoption.definition if lab.adoption is not None and lab.kind is LabKind.ADOPTED else None
    return running if kept is None else largest(running, kept.needs)


def is_seen(labs: Iterable[LabRecord], session_id: str, generation: int) -> bool:
    """Whether any record of a worker's labs may be a lab of this session, up to this import of it.

    The session may have been placed on the same worker again: the lab of a later import is another one.
    """
    return any(
        lab.kind is None
        or (lab.session_id == session_id and (lab.mark is None or lab.mark.generation <= generation))
        for lab in labs
    )
