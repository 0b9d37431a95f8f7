"""Exponential backoff: base, base x multiplier, ... up to a cap."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """How long to wait after so many failures in a row."""

    base_seconds: float = 1.0
    multiplier: float = 2.0
    max_seconds: float = 60.0

    def delay_seconds(self, retries: int) -> float:
        """The wait before retry number `retries`, counted from 0. Never overflows."""
        if retries > 64:
            return self.max_seconds
        return min(self.base_seconds * self.multiplier**retries, self.max_seconds)
