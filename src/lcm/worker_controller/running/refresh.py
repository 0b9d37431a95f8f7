"""Step 3: somebody asked for fresh facts about a worker."""

from datetime import datetime, timedelta
from typing import Final

from lcm.domain.worker import Worker

GOOD_FOR: Final = timedelta(minutes=2)
"""After that nobody waits for it any more, and a new leader need not do it again."""


def is_wanted(worker: Worker, *, done_for: datetime | None, now: datetime) -> bool:
    """`done_for` is the newest request that was carried out."""
    asked_at = worker.refresh_requested_at
    if asked_at is None or (done_for is not None and asked_at <= done_for):
        return False
    return now - asked_at <= GOOD_FOR
