"""Whether the loops of a process are alive: each says so, and three silent periods are a fault."""

from dataclasses import dataclass

from lcm.core.clock import Clock


@dataclass
class _Loop:
    period_seconds: float
    last_tick: float


class Health:
    """Heartbeats of loops, and the reasons why a controller currently acts on nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loops: dict[str, _Loop] = {}
        self._freezes: dict[str, str] = {}

    def tick(self, loop: str, period_seconds: float) -> None:
        """Record that this loop is alive and is due again within the period."""
        self._loops[loop] = _Loop(period_seconds, self._clock.monotonic())

    def forget(self, loop: str) -> None:
        """This loop ended on purpose."""
        self._loops.pop(loop, None)

    def freeze(self, authority: str, reason: str) -> None:
        """An authority is missing: until it is back nothing is started, stopped or terminated."""
        self._freezes[authority] = reason

    def thaw(self, authority: str) -> None:
        self._freezes.pop(authority, None)

    @property
    def freeze_reasons(self) -> list[str]:
        return [f"{authority}: {reason}" for authority, reason in sorted(self._freezes.items())]

    @property
    def silent_loops(self) -> list[str]:
        """Loops that missed three of their periods."""
        now = self._clock.monotonic()
        return sorted(
            name for name, loop in self._loops.items() if now - loop.last_tick > 3 * loop.period_seconds
        )
