"""Faults at calls: chosen by a plan, or by chance from a seed.

A planned fault names its call by role, site and ordinal, so taking one out leaves the others where they
are. Chance is a pure function of the seed and the same three, so a run can be repeated, and a random run
can be turned into a plan and shrunk.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache


class Act(StrEnum):
    """What happens instead of a successful call."""

    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"
    LOST = "reply-lost"
    LATE = "late-effect"
    ERROR = "error"
    HANG = "hang"
    STALE = "stale-read"
    FREEZE = "freeze"
    """The process is stopped while the reply is on its way, for longer than its lease."""


@dataclass(frozen=True, order=True)
class Fault:
    """One fault at one call."""

    role: str
    site: str
    nth: int
    act: Act

    def __str__(self) -> str:
        return f"{self.role}:{self.site}:{self.nth}:{self.act.value}"

    @staticmethod
    def parse(text: str) -> "Fault":
        role, site, nth, act = text.split(":")
        return Fault(role, site, int(nth), Act(act))


DEFAULT_RATES: Mapping[Act, float] = {
    Act.CRASH_BEFORE: 0.005,
    Act.CRASH_AFTER: 0.005,
    Act.LOST: 0.01,
    Act.LATE: 0.005,
    Act.ERROR: 0.01,
    Act.HANG: 0.005,
    Act.STALE: 0.05,
    Act.FREEZE: 0.006,
}


@dataclass
class Faults:
    """Chooses the fault of every call, and records its choices."""

    seed: int
    plan: Iterable[Fault] = ()
    rates: Mapping[Act, float] = field(default_factory=dict)
    applied: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.follow(self.plan)

    def follow(self, plan: Iterable[Fault]) -> None:
        """Replace the plan from here on."""
        self.plan = tuple(plan)
        self._planned = {(fault.role, fault.site, fault.nth): fault for fault in self.plan}

    def choose(self, role: str, site: str, nth: int, possible: Iterable[Act]) -> Act | None:
        if self._planned:
            planned = self._planned.get((role, site, nth))
            if planned is not None and planned.act in possible:
                self.applied.append(planned)
                return planned.act
        if not self.rates:
            return None
        draw = chance(self.seed, "fault", role, site, nth)
        for act in possible:
            rate = self.rates.get(act, 0.0)
            if draw < rate:
                self.applied.append(Fault(role, site, nth, act))
                return act
            draw -= rate
        return None


def chance(seed: int, of: str, role: str, site: str, nth: int) -> float:
    """A number in [0, 1) that depends on the arguments only."""
    return zlib.crc32(b"%d" % nth, _chances_at(seed, of, role, site)) / 2**32


@lru_cache(maxsize=4096)
def _chances_at(seed: int, of: str, role: str, site: str) -> int:
    """The checksum so far, which all calls at a site have in common."""
    return zlib.crc32(f"{seed}/{of}/{role}/{site}/".encode())
