"""Reports decisions to the control plane: those that changed, not those of every cycle."""

from datetime import datetime
from typing import Final

import structlog

from lcm.domain.errors import TransientError
from lcm.domain.lablet.decision import Decision, DecisionRecord, Outcome, Plan, is_changed, record_of
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.snapshot import Snapshot
from lcm.resource_scheduler.ports import ControlPlane

log = structlog.get_logger(__name__)

EXPLAINED: Final = 50
"""So many decisions of one cycle are recorded with candidates and counts: each judges all workers."""
REPORTED: Final = 500
KEPT: Final = 2_000
"""So many records wait for a control plane that does not answer; then the oldest are dropped."""


class DecisionRecorder:
    """Remembers the last record of every session that waits."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._last: dict[str, DecisionRecord] = {}
        self._unsent: list[DecisionRecord] = []

    def reset(self) -> None:
        """Forget what another leadership learned."""
        self._last.clear()
        self._unsent.clear()

    def note(
        self, snapshot: Snapshot, plan: Plan, *, at: datetime, milliseconds: float, refused: frozenset[str]
    ) -> None:
        """Note the decisions that changed. While some are refused, only placements are final."""
        changed = [
            decision
            for decision in plan.decisions.values()
            if decision.session_id not in refused
            and (not refused or decision.outcome is Outcome.ASSIGN)
            and is_changed(self._last.get(decision.session_id), decision)
        ]
        for decision in _explained(snapshot, changed, at):
            record = record_of(decision, at=at, revision=snapshot.revision, milliseconds=milliseconds)
            self._last[decision.session_id] = record
            self._unsent.append(record)
        if not refused:
            waiting = {session.id for session in snapshot.sessions}
            self._last = {
                session_id: record
                for session_id, record in self._last.items()
                if session_id in waiting and record.outcome is not Outcome.ASSIGN
            }

    async def report(self) -> None:
        """Report what is noted. Records are not worth a failed cycle: they are sent with the next ones."""
        try:
            while self._unsent:
                await self._control_plane.report_placements(self._unsent[:REPORTED])
                del self._unsent[:REPORTED]
        except TransientError as error:
            log.warning("placements not reported", count=len(self._unsent), error=str(error))
            del self._unsent[:-KEPT]


def _explained(snapshot: Snapshot, changed: list[Decision], at: datetime) -> list[Decision]:
    """The decisions, the first of them with their reasons: the same plan again, with explanations."""
    ids = [decision.session_id for decision in changed[:EXPLAINED]]
    if not ids:
        return []
    decisions = PlacementEngine.plan(snapshot, at, ids).decisions
    return [decisions[decision.session_id] for decision in changed]
