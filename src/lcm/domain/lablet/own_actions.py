"""Which starts and stops in labs are LCM's own: a worker that only LCM works on is idle."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import INSTANTIATING, STOPPING

SLACK: Final = timedelta(seconds=30)
"""How far the clocks of CML, of the controllers and of the control plane may be apart."""
_ACTS: Final = frozenset({INSTANTIATING, STOPPING})
"""While a session is ready or runs, its lab is people's."""


def is_own_action(session: LabletSession, at: datetime, *, worker_came_up_at: datetime | None = None) -> bool:
    """Whether LCM itself started or stopped the lab of this session at that moment."""
    if _is_restart(session, at, worker_came_up_at):
        return True
    spans = [(line.target, line.at, after.at) for line, after in pairwise(session.state_history)]
    if any(status in _ACTS and since - SLACK <= at <= until + SLACK for status, since, until in spans):
        return True
    present = session.state_history[-1] if session.state_history else None
    return present is not None and present.target in _ACTS and at >= present.at - SLACK


def _is_restart(session: LabletSession, at: datetime, worker_came_up_at: datetime | None) -> bool:
    """Whether LCM started the lab again then, or is about to, because its worker came up after its start."""
    started_at = session.lab.started_at if session.lab is not None else None
    if started_at is None:
        return False
    if worker_came_up_at is not None and started_at < worker_came_up_at <= at:
        return True
    return started_at - SLACK <= at <= started_at + SLACK
