"""The request rate of each caller: a token bucket that refills at a steady rate."""

from lcm.core.clock import Clock


class Buckets:
    """A bucket per key. Holds at most `burst`, gains `per_second`; beyond `max_keys` the oldest is dropped.

    A dropped bucket is a full one, so the bound can only admit more requests, never lock a caller out.
    """

    def __init__(self, clock: Clock, *, per_second: float, burst: int, max_keys: int = 10_000) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._max_keys = max_keys
        self._levels: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: str) -> float:
        """Take one token. Return 0 if there was one, else the seconds until there is."""
        level = self._level(key)
        has_token = level >= 1
        self._levels.pop(key, None)  # the dictionary's order is that of use
        self._levels[key] = (level - 1 if has_token else level, self._clock.monotonic())
        if len(self._levels) > self._max_keys:
            del self._levels[next(iter(self._levels))]
        return 0.0 if has_token else (1 - level) / self._per_second

    def wait_seconds(self, key: str) -> float:
        """Return the seconds until there is a token, without taking it."""
        return max(0.0, 1 - self._level(key)) / self._per_second

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (float(self._burst), self._clock.monotonic()))
        return min(self._burst, level + (self._clock.monotonic() - at) * self._per_second)
