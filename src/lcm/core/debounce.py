"""A debounce with a leading edge: act on the first event at once, merge what follows.

The first event for a quiet key starts a window and runs immediately; the events inside the window
become one run at its end, which starts the next window. A click acts within milliseconds and a
burst still costs two runs.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from lcm.core.clock import Clock

K = TypeVar("K", bound=Hashable)


class Debounce(Generic[K]):
    """Says how long an event for a key has to wait."""

    def __init__(self, window_seconds: float, clock: Clock) -> None:
        self._window = window_seconds
        self._clock = clock
        self._window_ends: dict[K, float] = {}

    def delay_seconds(self, key: K) -> float:
        """0 to run at once, otherwise the seconds to the end of the window, whatever was said before."""
        now = self._clock.monotonic()
        end = self._window_ends.get(key)
        if end is None or now >= end:
            self._forget_quiet_keys(now)
            self._window_ends[key] = now + self._window
            return 0.0
        if end - now > self._window:
            # Said again for every event: the run asked for before may have been brought forward since.
            return end - self._window - now
        # The run at the end of this window opens the next one, so that a steady stream of events
        # costs one run a window. The longer end also marks that run as already asked for.
        self._window_ends[key] = end + self._window
        return end - now

    def _forget_quiet_keys(self, now: float) -> None:
        """Keep the table as small as the number of keys that are busy."""
        if len(self._window_ends) > 1024:
            self._window_ends = {k: end for k, end in self._window_ends.items() if end > now}
