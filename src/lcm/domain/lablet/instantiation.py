"""What the lablet controller does with a session, as pure functions: its lab, its progress, its end.

The control plane calls them inside a compare-and-set. The intent to import a lab is stored before the import,
the proof that it is gone before the claim is released.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from lcm.domain.errors import Conflict, IllegalTransition
from lcm.domain.lablet import session_changes
from lcm.domain.lablet.evidence import Evidence
from lcm.domain.lablet.lab import (
    NOT_CLEANED,
    NOT_PROBED,
    CleanupProof,
    LabCleanup,
    LabStep,
    ProbedPorts,
    SessionLab,
    StepReport,
    StepStatus,
    bounded_nodes,
    has_left_queue,
    record_steps,
    restarted,
    times_of,
)
from lcm.domain.lablet.marker import LabOwner, Marker, lab_title
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import is_over
from lcm.domain.lablet.states import (
    COLLECTING,
    GRADING,
    INSTANTIATING,
    OWNS_LAB,
    READY,
    RUNNING,
    SCHEDULED,
    STOPPING,
    EndReason,
    SessionStatus,
    allowed_targets,
)
from lcm.domain.lablet.timeslot import DEFAULTS, TimeslotPolicy

_HAS_WORKER: Final = frozenset({SCHEDULED, *OWNS_LAB, STOPPING})


def move_on(
    session: LabletSession,
    target: SessionStatus,
    *,
    reason: str,
    now: datetime,
    end_reason: EndReason | None = None,
    policy: TimeslotPolicy = DEFAULTS,
) -> LabletSession:
    """The next status that the lablet controller decides. Raises Conflict or IllegalTransition."""
    if target is STOPPING:
        return _stop(session, end_reason, reason, now)
    steps: Mapping[SessionStatus, Callable[[], LabletSession]] = {
        INSTANTIATING: lambda: session_changes.instantiate(session, now=now, policy=policy),
        READY: lambda: _become_ready(session, now),
        RUNNING: lambda: session_changes.run(session, now=now),
        COLLECTING: lambda: _collect(session, now),
        GRADING: lambda: session_changes.grade(session, now=now),
    }
    if target not in steps:
        raise IllegalTransition(session.status, target, allowed_targets(session.status))
    return steps[target]()


def _become_ready(session: LabletSession, now: datetime) -> LabletSession:
    if session.status is INSTANTIATING and (session.lab is None or session.lab.lab_id is None):
        raise Conflict("no lab is recorded; report its id before the session is ready")
    return session_changes.become_ready(session, now=now)


def _collect(session: LabletSession, now: datetime) -> LabletSession:
    if session.status is RUNNING and not _may_end(session, now):
        raise Conflict("its time is not over and no end is requested; wait")
    return session_changes.collect(session, now=now)


def _stop(session: LabletSession, why: EndReason | None, reason: str, now: datetime) -> LabletSession:
    why = session.end_reason or why
    if why is None:
        raise Conflict("no end is requested; name the end_reason")
    is_early = why is EndReason.COMPLETED and not _may_end(session, now)
    if session.status in (SCHEDULED, *OWNS_LAB) and is_early:
        raise Conflict("its time is not over and no end is requested; wait")
    return session_changes.stop(session, why, reason=reason, now=now)


def _may_end(session: LabletSession, now: datetime) -> bool:
    return session.desired_status is SessionDesiredStatus.TERMINATED or is_over(session, now=now)


def is_repeated(session: LabletSession, source: SessionStatus, target: SessionStatus) -> bool:
    """Whether the newest change of the session is this one: its answer was lost."""
    last = session.state_history[-1] if session.state_history else None
    return last is not None and session.status is target and (last.source, last.target) == (source, target)


def intend_import(
    session: LabletSession,
    generation: int,
    *,
    attempt: int,
    instance_id: str | None,
    is_previous_gone: bool = False,
    now: datetime,
) -> LabletSession:
    """Record that a lab is about to be imported. Repeating it changes nothing."""
    if session.status is not INSTANTIATING or session.attempt != attempt:
        raise Conflict(f"the session is {session.status} at attempt {session.attempt}; import nothing for it")
    if session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict("the end of the session is requested; stop it instead")
    lab = session.lab
    if lab is not None and lab.generation == generation:
        return session
    if generation != session.lab_generation + 1:
        raise Conflict(f"import {session.lab_generation} was the last one; the next is one higher")
    if lab is not None and lab.lab_id is not None and not is_previous_gone:
        raise Conflict(f"lab {lab.lab_id} is recorded; delete it and prove that it is gone before")
    title = lab_title(session.id, generation, session.definition_name)
    return replace(
        session,
        lab=SessionLab(title=title, generation=generation, intent_at=now, instance_id=instance_id),
        lab_generation=generation,
        steps={step: restarted(record) for step, record in session.steps.items()},
        nodes={},
        probed=NOT_PROBED,
        cleanup=NOT_CLEANED,
        updated_at=now,
    )


def record_lab(
    session: LabletSession, generation: int, lab_id: str, *, is_adopted: bool, now: datetime
) -> LabletSession:
    """Record CML's id of the lab; the first one counts. Repeating it changes nothing."""
    lab = session.lab
    if session.is_ended or lab is None or lab.generation != generation:
        raise Conflict(
            f"import {generation} is not the one of this session; leave that lab to the leak sweep"
        )
    if lab.lab_id == lab_id:
        return session
    if lab.lab_id is not None:
        raise Conflict(f"lab {lab.lab_id} is recorded; that one is the session's, the other a duplicate")
    recorded = replace(lab, lab_id=lab_id, imported_at=now, is_adopted=is_adopted)
    return replace(session, lab=recorded, updated_at=now)


def note_claim(session: LabletSession, *, is_lost: bool, now: datetime) -> LabletSession:
    """Record whether the claim of the session's lab is lost. Repeating it changes nothing."""
    lab = session.lab
    if lab is None or session.is_ended or (lab.claim_lost_at is not None) is is_lost:
        return session
    return replace(session, lab=replace(lab, claim_lost_at=now if is_lost else None), updated_at=now)


def is_about(session: LabletSession, *, attempt: int, generation: int) -> bool:
    """Whether a report about this attempt and this import is about the session as it is now."""
    return session.status in _HAS_WORKER and (session.attempt, _import_of(session)) == (attempt, generation)


def _import_of(session: LabletSession) -> int:
    return session.lab.generation if session.lab is not None else 0


def record_progress(
    session: LabletSession,
    *,
    attempt: int,
    generation: int,
    steps: tuple[StepReport, ...] = (),
    nodes: Mapping[str, str] | None = None,
    probed: ProbedPorts | None = None,
    cleanup: LabCleanup | None = None,
    now: datetime,
) -> LabletSession:
    """Overwrite steps and nodes. A report about an earlier attempt or another lab changes nothing."""
    if not is_about(session, attempt=attempt, generation=generation):
        return session
    recorded = record_steps(session.steps, steps, now=now)
    lab = times_of(session.lab, recorded) if session.lab is not None else None
    if lab is not None and nodes is not None and has_left_queue(session.nodes, nodes):
        lab = replace(lab, left_queue_at=now)
    changed = replace(
        session,
        steps=recorded,
        lab=lab,
        nodes=session.nodes if nodes is None else bounded_nodes(nodes),
        probed=session.probed if probed is None else probed,
        cleanup=_observed(session.cleanup, cleanup),
    )
    return session if changed == session else replace(changed, updated_at=now)


def _observed(before: LabCleanup, seen: LabCleanup | None) -> LabCleanup:
    """What the controller observes; a proof and a person's decision come by requests of their own."""
    if seen is None:
        return before
    return replace(
        before,
        is_stopped=seen.is_stopped,
        is_wiped=seen.is_wiped,
        is_deleted=seen.is_deleted,
        is_worker_gone=seen.is_worker_gone,
        is_stuck=seen.is_stuck,
    )


def record_evidence(
    session: LabletSession, evidence: Evidence, *, attempt: int, detail: str, now: datetime
) -> LabletSession:
    """Name what was kept of the lab, and complete its step. The first file of a lab counts."""
    if not is_about(session, attempt=attempt, generation=evidence.n):
        raise Conflict("the session has moved on; what was collected is of an earlier lab")
    if any(kept.n == evidence.n for kept in session.evidence):
        return session
    if session.status is not COLLECTING:
        raise Conflict(f"the session is {session.status}; nothing is collected of it")
    tries = session.steps[LabStep.COLLECT].attempts if LabStep.COLLECT in session.steps else 0
    done = StepReport(step=LabStep.COLLECT, status=StepStatus.COMPLETED, attempts=tries + 1, detail=detail)
    return replace(
        session,
        evidence=(*session.evidence, evidence),
        steps=record_steps(session.steps, (done,), now=now),
        updated_at=now,
    )


def prove_cleaned(
    session: LabletSession, proof: CleanupProof, *, generation: int, instance_id: str | None, now: datetime
) -> LabletSession:
    """Record why nothing of the lab is left, before the claim is released. The first proof counts."""
    if session.status is not STOPPING:
        raise IllegalTransition(session.status, "an ended status", allowed_targets(session.status))
    if session.cleanup.proof is not None:
        return session
    lab = session.lab
    if _import_of(session) != generation:
        raise Conflict("the proof is about another import of the session; read it again")
    if (lab is None) is not (proof is CleanupProof.NEVER_IMPORTED):
        raise Conflict(
            "an import was intended; prove that the lab is absent"
            if lab is not None
            else "no import was intended; say never_imported"
        )
    if lab is not None and proof is CleanupProof.LAB_ABSENT and instance_id != lab.instance_id:
        raise Conflict(
            f"the lab was imported on instance {lab.instance_id}; its absence elsewhere proves nothing"
        )
    return replace(
        session, cleanup=replace(session.cleanup, proof=proof, proven_at=now, is_stuck=False), updated_at=now
    )


def owner_of(session: LabletSession, fleet_id: str) -> LabOwner | None:
    """What decides whether a lab is this session's; None as long as it can have none."""
    lab = session.lab
    if lab is None:
        return None
    return LabOwner(Marker(session.id, lab.generation, fleet_id), lab.lab_id, lab.instance_id)
