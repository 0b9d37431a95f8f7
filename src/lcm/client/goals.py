"""What can be waited for, and what a record says of it."""

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lcm.domain.lablet import states
from lcm.domain.license import LicenseStatus
from lcm.domain.lifecycle import FAILED, RUNNING, STOPPED, TERMINATED

if TYPE_CHECKING:
    from lcm.rest.lablets import LabletSessionView
    from lcm.rest.schemas import WorkerView


class Versioned(Protocol):
    """What every resource has that can be waited for."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...


class WorkerGoal(StrEnum):
    """What a worker can be waited for."""

    READY = "ready"
    """CML answers."""
    RUNNING = "running"
    """The instance runs."""
    STOPPED = "stopped"
    DELETED = "deleted"
    LICENSED = "licensed"


class SessionGoal(StrEnum):
    """What a lablet session can be waited for."""

    SCHEDULED = "scheduled"
    """A worker has its claim."""
    READY = "ready"
    """Every node has booted."""
    RUNNING = "running"
    ENDED = "ended"


class Standing(msgspec.Struct, frozen=True):
    """How far a resource is from its goal."""

    is_reached: bool
    now: str
    """Its state in a few words."""
    why_never: str = ""
    """Why the goal cannot be reached any more."""


def standing_of_worker(goal: WorkerGoal, worker: "WorkerView | None") -> Standing:
    """Judge a worker; None: there is none of this id any more."""
    if worker is None or worker.status is TERMINATED:
        is_goal = goal is WorkerGoal.DELETED
        return Standing(is_goal, "deleted", "" if is_goal else "it is deleted")
    now = str(worker.status) if worker.status is not RUNNING else _running(worker)
    reached = {
        WorkerGoal.READY: worker.status is RUNNING and worker.cml_ready,
        WorkerGoal.RUNNING: worker.status is RUNNING,
        WorkerGoal.STOPPED: worker.status is STOPPED,
        WorkerGoal.DELETED: False,
        WorkerGoal.LICENSED: worker.license.status is LicenseStatus.REGISTERED,
    }[goal]
    return Standing(reached, now, _why_never(goal, worker))


def _why_never(goal: WorkerGoal, worker: "WorkerView") -> str:
    if worker.status is FAILED and goal is not WorkerGoal.DELETED:
        return f"it has failed: {worker.status_reason}"
    license = worker.license
    if (
        goal is WorkerGoal.LICENSED
        and license.status is LicenseStatus.FAILED
        and not license.pending_operation
    ):
        return f"its license has failed: {license.last_error}"
    return ""


def standing_of_session(goal: SessionGoal, session: "LabletSessionView | None") -> Standing:
    """Judge a lablet session; None: there is none of this id any more."""
    if session is None or session.status in states.ENDED:
        now = str(session.status) if session is not None else "gone"
        is_goal = goal is SessionGoal.ENDED
        reason = session.status_reason if session is not None else "its record was removed"
        return Standing(is_goal, now, "" if is_goal else f"it has ended: {reason}")
    reached = session.status in _REACHED[goal]
    waits = session.waits_for
    return Standing(reached, f"{session.status}: {waits.text}" if waits else str(session.status))


def _running(worker: "WorkerView") -> str:
    return "running, CML answers" if worker.cml_ready else "running, CML does not answer yet"


_READY: Final = frozenset({states.READY, states.RUNNING})
_REACHED: Final = {
    SessionGoal.SCHEDULED: _READY | {states.SCHEDULED, states.INSTANTIATING},
    SessionGoal.READY: _READY,
    SessionGoal.RUNNING: frozenset({states.RUNNING}),
    SessionGoal.ENDED: states.ENDED,
}
