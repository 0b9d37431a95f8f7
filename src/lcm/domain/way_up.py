"""How far back a worker's way to RUNNING began, for estimates of when its CML takes labs."""

from datetime import datetime
from typing import NamedTuple

from lcm.domain.lifecycle import PENDING, RUNNING
from lcm.domain.worker import COMING_UP, Worker


class WayUp(NamedTuple):
    """The launch or the start of a worker."""

    began_at: datetime
    is_launch: bool


def way_up(worker: Worker) -> WayUp | None:
    """Return the way that the worker is on, or that made it RUNNING; None if it became so in another way."""
    steps = [line for line in reversed(worker.state_history) if line.is_arrival]
    if worker.status is RUNNING:
        steps = steps[1:]
    found = None
    for line in steps:
        if line.target not in COMING_UP:
            break
        found = WayUp(line.at, is_launch=line.target is PENDING)
    return found
