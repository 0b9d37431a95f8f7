"""Step 5: whether a worker's load has to be measured out of turn.

The metrics loop measures all workers together once in an interval. A worker that it has not come to yet,
because it has only just begun to run, is not left without numbers until then.
"""


def is_due(*, age_seconds: float | None, interval_seconds: float) -> bool:
    """`age_seconds` is the time since the last measurement; None if there was none."""
    return age_seconds is None or age_seconds > interval_seconds
