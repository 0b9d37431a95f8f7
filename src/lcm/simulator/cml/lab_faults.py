"""Faults of labs: nodes that do not boot or do not stop, and requests that CML refuses.

They are part of the model of labs, so that every user of it meets them: the REST API, simulated people, and
the labs in memory that LCM's own tests use.
"""

import random
from collections import Counter
from enum import Enum
from typing import ClassVar, Final, Literal, TypeVar

import msgspec

from lcm.simulator.cml.lab import Node
from lcm.simulator.cml.refusal import Refused

Action = Literal["import", "start", "stop", "wipe", "delete"]
SLOW_STOP_SECONDS: Final = 60.0
"""How much longer a node takes to stop if the seed decides so."""


class LabFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Affects one server or all; clearing the faults ends it."""

    worker: str | None = None
    """Instance id, private or public address; null: every worker."""
    count: int | None = None
    """How often it happens on each worker; null: always, until cleared."""

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError("count must be at least 1")


class _NodeFault(LabFault, frozen=True, kw_only=True):
    node: str | None = None
    """Label, id or node definition; null: every node."""

    def affects(self, node: Node) -> bool:
        return self.node is None or self.node in (node.label, node.id, node.definition.id)


class NeverBoots(_NodeFault, frozen=True, kw_only=True, tag="never_boots"):
    """Nodes that are started stay on their way, until they are stopped."""

    state: Literal["QUEUED", "STARTED"] = "STARTED"


class StopsAfterBoot(_NodeFault, frozen=True, kw_only=True, tag="stops_after_boot"):
    """Nodes that are started boot, and stop by themselves that many seconds later."""

    seconds: float = 5.0


class SlowStop(_NodeFault, frozen=True, kw_only=True, tag="slow_stop"):
    """Nodes that are stopped take that much longer; null: they never arrive."""

    seconds: float | None = None


class RefuseLab(LabFault, frozen=True, kw_only=True, tag="refuse_lab"):
    """Requests of this kind are answered with 400, and change nothing."""

    action: Action
    reason: Literal["license", "resources", "other"] = "other"
    """What the description says, unless there is one."""
    description: str = ""

    WORDS: ClassVar = {
        "license": "Cannot start: the number of running nodes would exceed the limit of the license.",
        "resources": "Cannot start: no compute host has enough free memory or CPUs.",
        "other": "The request was refused.",
    }

    @property
    def text(self) -> str:
        return self.description or self.WORDS[self.reason]


class Struck:
    """A fault, and how often it still happens."""

    def __init__(self, fault: LabFault) -> None:
        self.fault = fault
        self.left = fault.count

    def spend(self) -> bool:
        """Use it once; True if that was the last time."""
        if self.left is not None:
            self.left -= 1
        return self.left == 0


class ImportTrouble(Enum):
    """What goes wrong with an import, which makes its lab all the same."""

    ANSWER_LOST = "answer lost"
    LATE = "late"


class Fate(Enum):
    """What becomes of a node that is started."""

    BOOTS = "boots"
    STUCK_QUEUED = "stays queued"
    STUCK_STARTED = "stays started"
    STOPS = "stops after it has booted"


F = TypeVar("F", bound=_NodeFault)

_STUCK: Final = {"QUEUED": Fate.STUCK_QUEUED, "STARTED": Fate.STUCK_STARTED}


class LabFaults:
    """The faults of one server, the oldest first, and those that the seed decides."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._struck: list[Struck] = []
        self.trouble = 0.0
        """The share of starts of nodes that fail, drawn by the seed: half stay on their way, half stop."""
        self.request_trouble = 0.0
        """The share of requests that go wrong, drawn by the seed for each kind and its number."""
        self._requests: Counter[str] = Counter()

    def add(self, fault: LabFault) -> None:
        self._struck.append(Struck(fault))

    def clear(self) -> None:
        self._struck.clear()

    @property
    def is_any(self) -> bool:
        """Whether a fault is left that may still happen."""
        return bool(self._struck)

    def check(self, action: Action) -> None:
        """Refuse the request if a fault says so."""
        for struck in self._struck:
            if isinstance(struck.fault, RefuseLab) and struck.fault.action == action:
                self._spend(struck)
                raise Refused(400, struck.fault.text)
        if action != "import" and (drawn := self._draw(action)) is not None:
            of_start: Literal["license", "resources"] = "license" if drawn < 0.5 else "resources"
            reason = of_start if action == "start" else "other"
            raise Refused(400, RefuseLab(action=action, reason=reason).text)

    def import_trouble(self) -> ImportTrouble | None:
        """What goes wrong with the next import, as the seed decides; a refusal would be no trouble of CML."""
        drawn = self._draw("import")
        if drawn is None:
            return None
        return ImportTrouble.ANSWER_LOST if drawn < 0.5 else ImportTrouble.LATE

    def fate(self, node: Node) -> tuple[Fate, float]:
        """What becomes of a node that is started now, and after how many seconds."""
        if stuck := self._for(node, NeverBoots):
            return _STUCK[stuck.state], 0.0
        if stops := self._for(node, StopsAfterBoot):
            return Fate.STOPS, stops.seconds
        return self._drawn(node)

    def slow_stop(self, node: Node) -> SlowStop | None:
        slow = self._for(node, SlowStop)
        if slow is None and node.definition.has_vm and self._draw("stop of a node") is not None:
            return SlowStop(seconds=SLOW_STOP_SECONDS)
        return slow

    def _draw(self, what: str) -> float | None:
        """Return None if nothing goes wrong with this request, otherwise from 0 to 1 what does."""
        if not self.request_trouble:
            return None
        self._requests[what] += 1
        draw = random.Random(f"{self._seed}/requests/{what}/{self._requests[what]}").random()
        return draw / self.request_trouble if draw < self.request_trouble else None

    def _drawn(self, node: Node) -> tuple[Fate, float]:
        if not self.trouble or not node.definition.has_vm:
            return Fate.BOOTS, 0.0
        draw = random.Random(f"{self._seed}/trouble/{node.id}/{node.starts}").random()
        if draw >= self.trouble:
            return Fate.BOOTS, 0.0
        return (Fate.STUCK_STARTED, 0.0) if draw < self.trouble / 2 else (Fate.STOPS, 5.0)

    def _for(self, node: Node, kind: type[F]) -> F | None:
        for struck in self._struck:
            if isinstance(struck.fault, kind) and struck.fault.affects(node):
                self._spend(struck)
                return struck.fault
        return None

    def _spend(self, struck: Struck) -> None:
        if struck.spend():
            self._struck.remove(struck)
