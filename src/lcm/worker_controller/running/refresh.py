"""Step 3: a person requested a refresh of a worker."""

from datetime import datetime, timedelta
from typing import Final

from lcm.domain.worker import Worker

EXPIRES_AFTER: Final = timedelta(minutes=2)
"""After that a request has expired, and a new leader need not repeat it."""


def is_requested(worker: Worker, *, done_for: datetime | None, now: datetime) -> bool:
    """Whether a refresh is due; `done_for` is the newest request that was carried out."""
    asked_at = worker.refresh_requested_at
    if asked_at is None or (done_for is not None and asked_at <= done_for):
        return False
    return now - asked_at <= EXPIRES_AFTER
