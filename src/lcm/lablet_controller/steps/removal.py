"""Brings a lab to rest without disks, whatever state it is in."""

from datetime import timedelta
from typing import Final

from lcm.domain.lablet.lab import LabStep
from lcm.lablet_controller.decisions import (
    AT_REST,
    POLL_SECONDS,
    STUCK_SECONDS,
    Decision,
    LabView,
    Situation,
    Stop,
    Wait,
    Wipe,
)
from lcm.lablet_controller.ports import ElementState

STOPS_WITHIN: Final = timedelta(seconds=120)
STOPS_AS_A_WHOLE: Final = 3
"""After so many requests its nodes are stopped one by one."""


def wiped(situation: Situation, view: LabView) -> Decision | None:
    """The next request, or None if the lab is wiped."""
    running = tuple(node.id for node in view.nodes if node.state not in AT_REST)
    if running:
        return _stop(situation, running)
    if any(node.state is ElementState.STOPPED for node in view.nodes):
        return Wipe()
    return None


def _stop(situation: Situation, running: tuple[str, ...]) -> Decision:
    before = situation.session.steps.get(LabStep.STOP)
    if before is None or before.started_at is None:
        return Stop(1 if before is None else before.attempts + 1)
    is_stubborn = before.attempts >= STOPS_AS_A_WHOLE
    pace = timedelta(seconds=STUCK_SECONDS) if before.attempts > STOPS_AS_A_WHOLE else STOPS_WITHIN
    if situation.now - before.started_at < pace:
        return Wait(f"{len(running)} nodes stop", POLL_SECONDS)
    return Stop(before.attempts + 1, running if is_stubborn else ())
