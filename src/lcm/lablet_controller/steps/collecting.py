"""COLLECTING: keep what the definition asks for, within five minutes; then the lab is removed in any case.

A crash after any call repeats the collection: configurations may be extracted twice, and the control plane
keeps the first file that it was given. A failure is noted in the step and never holds up the end.
"""

from datetime import timedelta
from typing import Final

from lcm.domain.lablet.definition import Collect as CollectOption
from lcm.domain.lablet.lab import LabStep, StepRecord, StepReport, StepStatus
from lcm.domain.observation import Absent, Known, Unknown
from lcm.lablet_controller.decisions import (
    Collect,
    Decision,
    LabView,
    Report,
    Situation,
    Wait,
    has_configuration,
)

COLLECTS_WITHIN: Final = timedelta(seconds=300)
DOWNLOADS_WITHIN: Final = timedelta(seconds=60)
"""Of that so much is left for the download, whatever the nodes do."""
MAX_TRIES: Final = 3
_NEVER: Final = StepRecord(status=StepStatus.PENDING)


def decide(situation: Situation) -> Decision:
    session = situation.session
    step = session.steps.get(LabStep.COLLECT, _NEVER)
    if step.status in (StepStatus.COMPLETED, StepStatus.FAILED):
        return situation.end()
    if session.lab is None or situation.is_worker_lost:
        return _give_up(step, situation.describe_worker())
    ends_at = session.status_since + COLLECTS_WITHIN
    if situation.now >= ends_at:
        return _give_up(step, f"not collected in time: {step.detail or situation.describe_worker()}")
    if step.attempts >= MAX_TRIES:
        return _give_up(step, step.detail)
    if not situation.is_worker_usable:
        return Wait(situation.describe_worker())
    match situation.seen:
        case Unknown(reason):
            return Wait(reason)
        case Absent():
            return _give_up(step, "the lab was deleted, and not by LCM")
        case Known(view):
            room = ends_at - situation.now - DOWNLOADS_WITHIN
            nodes = _extractable(view) if session.collect is CollectOption.CONFIGS else ()
            return Collect(step.attempts + 1, nodes, max(0.0, room.total_seconds()))


def _extractable(view: LabView) -> tuple[str, ...]:
    return tuple(node.id for node in view.nodes if has_configuration(node))


def _give_up(step: StepRecord, why: str) -> Report:
    failed = StepReport(
        step=LabStep.COLLECT, status=StepStatus.FAILED, attempts=max(1, step.attempts), detail=why
    )
    return Report((failed,))
