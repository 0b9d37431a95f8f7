"""The base of invariants. To add one, write a subclass whose docstring states the rule it enforces.

Invariants check the actual state (disk, cloud), not what a process was shown.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from lcm.control_plane.records.sessions import KIND as SESSION
from lcm.control_plane.store.port import Document, Fence
from lcm.domain.lablet.session import LabletSession
from lcm.domain.worker import Worker
from simulation.world.calls import Call, Violation
from simulation.world.lab_ports import LabAct
from simulation.world.processes import Process
from simulation.world.world import World
from support.memory_cloud import MemoryInstance

ALL: list[type["Invariant"]] = []
"""Every subclass is checked in every run."""


class Invariant:
    """Checks calls, effects and commits, and the final state at rest."""

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            ALL.append(cls)

    def __init__(self, world: World) -> None:
        self.world = world
        if not self.applies_to(world):
            return
        mine, nothing = type(self), Invariant
        if mine.on_call is not nothing.on_call:
            world.on_call.append(self.on_call)
        if mine.on_answer is not nothing.on_answer:
            world.on_answer.append(self.on_answer)
        if mine.on_effect is not nothing.on_effect:
            world.on_effect.append(self.on_effect)
        if mine.on_sent is not nothing.on_sent:
            world.on_sent.append(self._on_sent)
        if mine.on_login is not nothing.on_login:
            world.on_login.append(self.on_login)
        if mine.on_lab is not nothing.on_lab:
            world.on_lab.append(self.on_lab)
        if mine.on_event is not nothing.on_event:
            world.on_event.append(self._on_event)
        if any(
            getattr(mine, name) is not getattr(nothing, name)
            for name in ("on_worker", "on_session", "on_document")
        ):
            world.disk.on_commit.append(self._on_commit)

    @staticmethod
    def applies_to(world: World) -> bool:
        """Whether anything can happen in this world that it would have to check."""
        return True

    def on_call(self, process: Process, call: Call) -> None: ...

    def on_effect(self, process: Process, call: Call) -> None: ...

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        """Record what a process is shown, to judge what follows from it."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None: ...

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None: ...

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None: ...

    def on_sent(self, process: Process, method: str, path: str, body: bytes | None) -> None:
        """Check a request that a process sends, whatever becomes of it."""

    def on_login(self, instance: MemoryInstance) -> None:
        """Check a login of LCM that arrives at the CML server of an instance."""

    def on_lab(self, act: LabAct) -> None:
        """Check a change of a lab that arrives at a CML server, before its effect."""

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        """Check an event that an open page received."""

    def at_rest(self) -> None: ...

    def require(self, condition: bool, detail: str) -> None:
        if not condition:
            raise Violation(type(self).__name__, detail)

    def _on_sent(self, process: Process, method: str, path: str, body: bytes | None) -> None:
        try:
            self.on_sent(process, method, path, body)
        except Violation as violation:
            self.world.fail(violation)

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
            elif after.kind == SESSION:
                was = _session_in(before.body) if before else None
                self.on_session(was, _session_in(after.body), fence)
        except Violation as violation:
            self.world.fail(violation)


@lru_cache(maxsize=8)
def _worker_in(body: bytes) -> Worker:
    """Decoded once for all invariants."""
    return msgspec.json.decode(body, type=Worker)


@lru_cache(maxsize=8)
def _session_in(body: bytes) -> LabletSession:
    return msgspec.json.decode(body, type=LabletSession)
