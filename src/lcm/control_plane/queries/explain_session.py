"""Why a lablet session waits and when it gets a worker, or what became of it.

The decision is that of the placement engine on the snapshot that the scheduler reads, so an explanation is
what the next cycle does.
"""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.forecast import forecast
from lcm.control_plane.queries.scheduling import read_snapshot
from lcm.control_plane.records.groups import Caches, Records
from lcm.domain.lablet.decision import Decision, Explanation, Outcome
from lcm.domain.lablet.filters import Rejection
from lcm.domain.lablet.forecast import FitOfSlot
from lcm.domain.lablet.lab import LabStep, StepStatus
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus, WaitCode
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.states import (
    COLLECTING,
    GRADING,
    INSTANTIATING,
    PENDING,
    READY,
    RUNNING,
    SCHEDULED,
    STOPPING,
    WITHOUT_CLAIM,
)
from lcm.domain.lablet.timeslot import TimeslotPolicy
from lcm.domain.lablet.wording import clock_time
from lcm.rest.scheduling import SessionExplanation, WorkerReasons

SILENT: Final = "No scheduler has reported for a minute, and nothing is placed until one does."


async def explain_session(
    records: Records, policies: Policies, session: LabletSession, *, caches: Caches | None = None
) -> SessionExplanation:
    """Return what the next cycle does with a session that waits; of any other, why it is where it is."""
    is_wanted = session.desired_status is SessionDesiredStatus.RUNNING
    if session.status in WITHOUT_CLAIM and is_wanted:
        return await _explain_waiting(records, policies, session, caches)
    worker = await records.workers.find(session.worker_id) if session.worker_id else None
    place = f"worker {worker.name}" if worker is not None else "a worker that is gone"
    return SessionExplanation(
        session_id=session.id,
        status=session.status,
        outcome=None,
        code=None,
        text=_standing(session, place, records.clock.now(), policies.times) + _lost_claim(session, place),
        since=session.state_history[-1].at if session.state_history else session.updated_at,
        worker_id=session.worker_id,
    )


async def _explain_waiting(
    records: Records, policies: Policies, session: LabletSession, caches: Caches | None
) -> SessionExplanation:
    snapshot = await read_snapshot(records, policies, caches=caches)
    decision = PlacementEngine.decide(snapshot, session, records.clock.now())
    explained = explanation_of(decision, session, snapshot)
    if session.status is PENDING:
        return await _with_forecast(records, policies, session, explained)
    if not records.scheduler.is_silent:
        return explained
    return replace(
        explained,
        code=WaitCode.SCHEDULER_DOWN,
        text=f"{SILENT} Then: {decision.text}",
        is_scheduler_silent=True,
    )


async def _with_forecast(
    records: Records, policies: Policies, session: LabletSession, explained: SessionExplanation
) -> SessionExplanation:
    """A booking is placed when its window opens; until then the forecast says whether it fits."""
    found = await forecast(
        records,
        policies,
        session.demand,
        seats=1,
        timeslot=session.timeslot,
        max_minutes=session.max_duration_minutes,
        lab_lead=session.lab_lead,
        without=(session.id,),
    )
    eta = explained.eta if found.verdict is not FitOfSlot.OVER else None
    return replace(explained, text=f"{explained.text} {found.text}", eta=eta, forecast=found)


def explanation_of(decision: Decision, session: LabletSession, snapshot: Snapshot) -> SessionExplanation:
    """Return a decision about a session in the words of the API."""
    found = decision.explanation or Explanation()
    counted_on = decision.nomination.worker_id if decision.nomination is not None else None
    return SessionExplanation(
        session_id=session.id,
        status=session.status,
        outcome=decision.outcome,
        code=decision.code,
        text=decision.text,
        since=_since(decision, session),
        worker_id=decision.worker_id or counted_on,
        nomination=decision.nomination,
        position=decision.position,
        ahead=decision.ahead,
        workers=reasons_of(found, snapshot),
        counts=found.counts,
        candidates=found.candidates,
        next_event=found.next_event,
        eta=found.eta,
        warnings=decision.warnings,
    )


def reasons_of(found: Explanation, snapshot: Snapshot) -> tuple[WorkerReasons, ...]:
    """Return every worker by name, with every reason why it does not take the session now."""
    by_worker: dict[str, list[Rejection]] = {worker.id: [] for worker in snapshot.workers}
    for rejection in found.rejections:
        by_worker[rejection.worker_id].append(rejection)
    return tuple(
        WorkerReasons(worker_id=worker.id, worker_name=worker.name, reasons=tuple(by_worker[worker.id]))
        for worker in sorted(snapshot.workers, key=lambda worker: (worker.name, worker.id))
    )


def _since(decision: Decision, session: LabletSession) -> datetime | None:
    """Since when the session waits for this reason; for one that the scheduler has not reported, None."""
    if decision.outcome is Outcome.ASSIGN or session.waits_for is None:
        return session.state_history[-1].at if session.state_history else session.created_at
    return session.waits_for.since if session.waits_for.code is decision.code else None


def _describe_use(session: LabletSession, place: str, until: str) -> str:
    run = session.steps.get(LabStep.RUN)
    if run is None or run.status is not StepStatus.FAILED:
        return f"Its lab runs on {place}{until}."
    return f"Its lab on {place} does not run ({run.detail}); restart it, or end the session."


def _lost_claim(session: LabletSession, place: str) -> str:
    if session.is_ended or session.lab is None or session.lab.claim_lost_at is None:
        return ""
    return f" Its claim is lost: {place} cannot hold it again yet, and others may get its room and ports."


def _standing(session: LabletSession, place: str, now: datetime, times: TimeslotPolicy) -> str:
    """One sentence about a session that does not wait."""
    if session.is_ended:
        return f"It ended as {session.status}: {session.status_reason or 'as booked'}."
    if session.status in WITHOUT_CLAIM:
        return f"Its end is requested: {session.end_text}."
    slot, end = session.timeslot, session.ends_at
    due_at = session.lab_due_at(times.lab_lead)
    start = ""
    if slot is not None and due_at is not None:
        start = f" at {clock_time(due_at, session, now)} for {clock_time(slot.start, session, now)}"
    until = f" until {clock_time(end, session, now)}" if end is not None else ""
    return {
        SCHEDULED: f"It has {place}, on which its lab is started{start}.",
        INSTANTIATING: f"Its lab is imported and started on {place}.",
        READY: f"Its lab is ready on {place}{until}.",
        RUNNING: _describe_use(session, place, until),
        COLLECTING: f"Its configurations are collected on {place}.",
        GRADING: "What was collected is graded.",
        STOPPING: f"Its lab is removed from {place}: {session.end_text or session.status_reason}.",
    }[session.status]
