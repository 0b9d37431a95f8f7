"""The control plane's time in another process: the times that it recorded are judged by no other clock."""

from datetime import datetime, timedelta

from lcm.core.clock import Clock


class PlaneClock:
    """Shows the time of the control plane's clock, as learned from its answers, whatever the own one shows.

    Each answer was written between its request and its arrival. Of all times that the answers allow this is
    the earliest one that none contradicts, so that nothing is judged to be due before the control plane
    agrees. Before the first answer, and with a control plane of a version whose answers have no time, it is
    the own clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep
        self._started: datetime | None = None
        """What the control plane's clock showed when the monotonic one began."""

    def now(self) -> datetime:
        if self._started is None:
            return self._clock.now()
        return self._started + timedelta(seconds=self.monotonic())

    def learn(self, answered_at: datetime | None, *, asked: float) -> None:
        """Take the time in an answer that has just arrived; `asked` is the monotonic time of its request."""
        if answered_at is None:
            return
        earliest = answered_at - timedelta(seconds=self.monotonic())
        latest = answered_at - timedelta(seconds=asked)
        self._started = min(max(self._started or earliest, earliest), latest)
