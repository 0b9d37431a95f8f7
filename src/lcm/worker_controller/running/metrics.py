"""Step 5: whether a worker's load must be measured before the next interval.

The metrics loop measures all workers together once per interval. A worker that has only just become
RUNNING is measured without waiting for it.
"""


def is_due(*, age_seconds: float | None, interval_seconds: float) -> bool:
    """`age_seconds` is the time since the last measurement; None if there was none."""
    return age_seconds is None or age_seconds > interval_seconds
