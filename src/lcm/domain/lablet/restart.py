"""A lab in use that is to be started again: it was stopped, and not by LCM, or a node of it is off.

Starting a lab that runs starts only the nodes at rest, so that a request may be carried out twice.
"""

from datetime import datetime

from msgspec.structs import replace

from lcm.domain.errors import Conflict
from lcm.domain.lablet.lab import LabStep
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.states import RUNNING


def request_restart(session: LabletSession, *, now: datetime) -> LabletSession:
    """Record that the lab is to be started again. A request before it is carried out changes nothing."""
    if session.status is not RUNNING or session.desired_status is SessionDesiredStatus.TERMINATED:
        raise Conflict(f"the session is {session.status}; only a lab in use is started again")
    if is_restart_wanted(session):
        return session
    return replace(
        session,
        restarts_wanted=restarts_of(session) + 1,
        generation=session.generation + 1,
        updated_at=now,
    )


def is_restart_wanted(session: LabletSession) -> bool:
    """Whether a request is not carried out yet."""
    return restarts_of(session) < session.restarts_wanted


def restarts_of(session: LabletSession) -> int:
    """How often the lab in use was started again, or CML refused to."""
    run = session.steps.get(LabStep.RUN)
    return run.attempts if run is not None else 0
