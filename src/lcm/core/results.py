"""What one reconcile came to. The loop, not the step, decides when to run again."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Success:
    """Converged: forget past failures, wait for the next event or poll."""


@dataclass(frozen=True)
class Requeue:
    """Not converged yet, nothing is wrong: reconcile again after a delay, or at the next resync.

    Failures of the last minute are not forgotten over it."""

    reason: str
    after_seconds: float | None = None


@dataclass(frozen=True)
class Retry:
    """A transient failure: run again with exponential backoff, but not before `at_least_seconds`."""

    reason: str
    at_least_seconds: float = 0.0


@dataclass(frozen=True)
class Skip:
    """Nothing to do here."""

    reason: str


ReconciliationResult = Success | Requeue | Retry | Skip
