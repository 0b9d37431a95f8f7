"""The base of invariants. To add one, write a subclass whose docstring states the rule it enforces.

Invariants check the actual state (disk, cloud), not what a process was shown.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from lcm.control_plane.store.port import Document, Fence
from lcm.domain.worker import Worker
from simulation.world.calls import Call, Violation
from simulation.world.processes import Process
from simulation.world.world import World

ALL: list[type["Invariant"]] = []
"""Every subclass is checked in every run."""


class Invariant:
    """Checks calls, effects and commits, and the final state at rest."""

    def __init_subclass__(cls) -> None:
        ALL.append(cls)

    def __init__(self, world: World) -> None:
        self.world = world
        mine, nothing = type(self), Invariant
        if mine.on_call is not nothing.on_call:
            world.on_call.append(self.on_call)
        if mine.on_answer is not nothing.on_answer:
            world.on_answer.append(self.on_answer)
        if mine.on_effect is not nothing.on_effect:
            world.on_effect.append(self.on_effect)
        if mine.on_event is not nothing.on_event:
            world.on_event.append(self._on_event)
        if mine.on_worker is not nothing.on_worker or mine.on_document is not nothing.on_document:
            world.disk.on_commit.append(self._on_commit)

    def on_call(self, process: Process, call: Call) -> None: ...

    def on_effect(self, process: Process, call: Call) -> None: ...

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        """Record what a process is shown, to judge what follows from it."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None: ...

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None: ...

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        """Check an event that an open page received."""

    def at_rest(self) -> None: ...

    def require(self, condition: bool, detail: str) -> None:
        if not condition:
            raise Violation(type(self).__name__, detail)

    def _on_event(self, event: str, data: Mapping[str, Any]) -> None:
        try:
            self.on_event(event, data)
        except Violation as violation:
            self.world.fail(violation)

    def _on_commit(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        try:
            self.on_document(before, after, fence)
            if after.kind == "worker":
                self.on_worker(_worker_in(before.body) if before else None, _worker_in(after.body), fence)
        except Violation as violation:
            self.world.fail(violation)


@lru_cache(maxsize=8)
def _worker_in(body: bytes) -> Worker:
    """Decoded once for all invariants."""
    return msgspec.json.decode(body, type=Worker)
