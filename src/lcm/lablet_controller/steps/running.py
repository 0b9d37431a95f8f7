"""RUNNING: observe the lab until the session ends. What people do inside the lab is theirs.

A lab that was stopped outside LCM is shown as such, for its people may have meant it. One whose worker was
restarted is started again: its people meant nothing.
"""

from datetime import timedelta
from typing import Final

from lcm.domain.lablet.definition import Collect
from lcm.domain.lablet.lab import LabStep, StepRecord, StepReport, StepStatus
from lcm.domain.lablet.restart import is_restart_wanted
from lcm.domain.lablet.states import COLLECTING
from lcm.domain.observation import Absent, Known
from lcm.lablet_controller.decisions import (
    AT_REST,
    Decision,
    LabView,
    Move,
    Report,
    Situation,
    Start,
    Unschedule,
    Wait,
    fail,
)

STOPPED_OUTSIDE: Final = "lab_stopped_outside"
STARTS_WITHIN: Final = timedelta(seconds=60)
"""A lab that is started again is at rest for a moment."""
_NEVER: Final = StepRecord(status=StepStatus.PENDING)


def decide(situation: Situation) -> Decision:
    if situation.must_end:
        return _begin_end(situation)
    if situation.is_worker_lost:
        return Unschedule(f"worker_lost: {situation.describe_worker()}", is_worker_lost=True)
    match situation.seen:
        case Absent():
            return fail("lab_deleted_outside: the lab was deleted, and not by LCM")
        case Known(view):
            return _watch_over(situation, view) or _wait(situation)
    return _wait(situation)


def _wait(situation: Situation) -> Wait:
    return Wait("in use", situation.seconds_until(situation.session.ends_at))


def _watch_over(situation: Situation, view: LabView) -> Decision | None:
    """What is to be done about the lab, if anything is."""
    run = situation.session.steps.get(LabStep.RUN, _NEVER)
    is_at_rest = view.state in AT_REST
    if is_restart_wanted(situation.session):
        return Start()
    if not is_at_rest:
        return _record(run, StepStatus.COMPLETED) if run.status is StepStatus.FAILED else None
    if situation.has_worker_restarted or (situation.restarts_stopped_labs and run.attempts == 0):
        return Start()
    if run.status is StepStatus.FAILED:
        return None
    if _was_just_started(situation, run):
        return Wait("the lab starts again")
    return _record(run, StepStatus.FAILED, f"{STOPPED_OUTSIDE}: the lab was stopped, and not by LCM")


def _was_just_started(situation: Situation, run: StepRecord) -> bool:
    return run.started_at is not None and situation.now - run.started_at < STARTS_WITHIN


def _record(run: StepRecord, status: StepStatus, detail: str = "") -> Report:
    seen = StepReport(step=LabStep.RUN, status=status, attempts=run.attempts, detail=detail)
    return Report((seen,))


def _begin_end(situation: Situation) -> Decision:
    if situation.session.collect is Collect.NONE or situation.is_worker_lost:
        return situation.end()
    return Move(COLLECTING, "it ends")


def end(situation: Situation) -> Decision:
    """GRADING: nothing grades yet."""
    return situation.end()
