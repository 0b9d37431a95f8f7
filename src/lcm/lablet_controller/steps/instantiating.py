"""INSTANTIATING: intend, find or import, check, start, wait until every node has booted, test the ports.

Whatever process dies after whatever call, the next one continues from what is recorded and what CML shows: a
lab is searched for before it is imported, and everything else may be repeated.
"""

import re
from datetime import timedelta
from typing import Final

from lcm.domain.lablet.lab import OVER, LabStep, StepRecord, StepReport, StepStatus, bounded_nodes
from lcm.domain.lablet.probe import probed_ports
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import READY
from lcm.domain.observation import Absent, Known, Unknown
from lcm.lablet_controller.decisions import (
    WITHOUT_LAB,
    Adopt,
    Decision,
    Delete,
    Import,
    IntendImport,
    LabView,
    Move,
    Probe,
    Report,
    SetTags,
    Situation,
    Start,
    Unschedule,
    Wait,
    fail,
)
from lcm.lablet_controller.steps import removal

MAX_BOOTS: Final = 3
"""The second starts the wiped lab, the third a lab that is imported anew."""
MAX_REFUSED_STARTS: Final = 3
MAX_PLACEMENTS: Final = 5
"""A lab that no worker starts in so many placements fails."""
SLOWEST_BOOT_FACTOR: Final = 1.5
_WANT_OF_ROOM: Final = re.compile(r"licen[cs]e|resource|memory|ram\b|cpu|disk|compute", re.IGNORECASE)
"""What CML says when it cannot start a lab that another worker may start."""
MAX_TAG_CHANGES: Final = 3
_CLAIM_LOST: Final = "claim_lost: the worker has no room for the lab any more"
"""Nothing is imported without a claim."""
_NEVER: Final = StepRecord(status=StepStatus.PENDING)


def decide(situation: Situation) -> Decision:
    session, lab = situation.session, situation.session.lab
    if situation.must_end:
        return situation.end()
    if situation.is_worker_lost or (lab is None and situation.does_worker_leave):
        return Unschedule(situation.describe_worker(), situation.is_worker_lost)
    if not situation.is_worker_usable:
        return _wait(situation, situation.describe_worker())
    if lab is None:
        return IntendImport(session.lab_generation + 1)
    match situation.seen:
        case Unknown(reason):
            return _wait(situation, reason)
        case Absent() if lab.claim_lost_at is not None:
            return Unschedule(_CLAIM_LOST, is_lab_gone=lab.lab_id is not None)
        case Absent() if lab.lab_id is None:
            return Import()
        case Absent() if _is_start_refused(session):
            return Unschedule(f"start_refused: {session.steps[LabStep.START].detail}", is_lab_gone=True)
        case Absent():
            return IntendImport(session.lab_generation + 1, is_previous_gone=True)
        case Known(view) if lab.lab_id is None:
            return Adopt(view.lab_id)
        case Known(view):
            return _bring_up(situation, view)


def _wait(situation: Situation, reason: str) -> Decision:
    """Wait for the worker or its CML; without a lab another worker is soon the better one."""
    lab = situation.session.lab
    is_long = situation.now - situation.session.status_since >= WITHOUT_LAB
    if is_long and (lab is None or lab.lab_id is None):
        return Unschedule(f"no lab within {WITHOUT_LAB.seconds // 60} minutes: {reason}")
    return Wait(reason)


def _bring_up(situation: Situation, view: LabView) -> Decision:
    steps = situation.session.steps
    boot = steps.get(LabStep.BOOT, _NEVER)
    if bounded_nodes(view.states) != situation.session.nodes:
        return Report(nodes=view.states)
    if boot.status is StepStatus.FAILED:
        return _try_again(situation, view, boot)
    if not view.is_complete:
        return _fail_boot(boot, "the lab has not the nodes that were imported", needs_import=True)
    check = steps.get(LabStep.CHECK, _NEVER)
    if check.status not in (StepStatus.COMPLETED, StepStatus.FAILED):
        return _check_tags(view, check)
    if steps.get(LabStep.START, _NEVER).status is not StepStatus.COMPLETED or situation.has_worker_restarted:
        return _start(situation, view, boot)
    if view.has_converged and not view.not_booted:
        if boot.status is StepStatus.COMPLETED:
            return _test_ports(situation.session)
        return Report((_done(LabStep.BOOT, boot.attempts),))
    if _is_late(situation, view, boot):
        return _fail_boot(boot, f"boot_timeout: not booted in time: {', '.join(view.not_booted[:10])}")
    return Wait(f"{len(view.nodes) - len(view.not_booted)} of {len(view.nodes)} nodes have booted")


def _check_tags(view: LabView, check: StepRecord) -> Decision:
    """CML that does not keep the tags costs people an address, not their lab."""
    if not view.wrong_tags:
        return Report((_done(LabStep.CHECK, check.attempts),))
    if check.attempts < MAX_TAG_CHANGES:
        return SetTags(view.wrong_tags)
    detail = "CML does not keep the tags of the granted ports"
    return Report(
        (StepReport(step=LabStep.CHECK, status=StepStatus.FAILED, attempts=check.attempts, detail=detail),)
    )


def _test_ports(session: LabletSession) -> Decision:
    """A port that does not answer is shown and holds nothing up for long."""
    probe = session.steps.get(LabStep.PROBE, _NEVER)
    if probe.status in OVER or not probed_ports(session.demand.ports, session.ports):
        return Move(READY, "every node has booted")
    return Probe(probe.attempts + 1)


def _is_late(situation: Situation, view: LabView, boot: StepRecord) -> bool:
    """The time begins anew with each node that leaves CML's queue: a large lab is started bit by bit."""
    session = situation.session
    left_queue_at = session.lab.left_queue_at if session.lab is not None else None
    since = max((at for at in (boot.started_at, left_queue_at) if at is not None), default=situation.now)
    given = session.boot_timeout_seconds
    limit = max(situation.start_timeout, timedelta(seconds=SLOWEST_BOOT_FACTOR * view.boot_seconds))
    return situation.now - since > (limit if given is None else timedelta(seconds=given))


def _fail_boot(boot: StepRecord, reason: str, *, needs_import: bool = False) -> Decision:
    if boot.attempts >= MAX_BOOTS:
        return fail(reason)
    attempts = max(boot.attempts + 1, MAX_BOOTS - 1) if needs_import else max(boot.attempts, 1)
    failed = StepReport(step=LabStep.BOOT, status=StepStatus.FAILED, attempts=attempts, detail=reason)
    return Report((failed,))


def _try_again(situation: Situation, view: LabView, boot: StepRecord) -> Decision:
    if boot.attempts >= MAX_BOOTS:
        return fail(boot.detail)
    return removal.wiped(situation, view) or (
        _start(situation, view, boot) if boot.attempts < MAX_BOOTS - 1 else Delete()
    )


def _start(situation: Situation, view: LabView, boot: StepRecord) -> Decision:
    """CML may refuse a start for a moment; a worker that always does cannot run the lab, another may."""
    session = situation.session
    if not _is_start_refused(session):
        return Start()
    detail = session.steps[LabStep.START].detail
    if _WANT_OF_ROOM.search(detail) is None or session.place_attempts >= MAX_PLACEMENTS:
        return fail(f"start_refused: {detail}")
    return removal.wiped(situation, view) or Delete()


def _is_start_refused(session: LabletSession) -> bool:
    """Whether CML refused so often that it is not asked again."""
    start, boot = session.steps.get(LabStep.START, _NEVER), session.steps.get(LabStep.BOOT, _NEVER)
    return start.status is StepStatus.FAILED and start.attempts - boot.attempts >= MAX_REFUSED_STARTS


def _done(step: LabStep, attempts: int) -> StepReport:
    return StepReport(step=step, status=StepStatus.COMPLETED, attempts=attempts)
