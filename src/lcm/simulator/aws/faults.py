"""Faults on demand: AWS calls that fail, hang, are slow, lose their reply or end badly."""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import msgspec


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault in calls of one operation, as `POST /_lcm/faults` takes it."""

    operation: str
    """Of any service; `*`: every one."""
    kind: Literal["error", "hang", "lose_reply", "delay", "stall", "give_up"]
    count: int | None = 1
    """How many calls it strikes; null: all of them until the faults are cleared."""
    instance_id: str | None = None
    """Only calls that name this instance."""
    code: str = "InternalError"
    """Error code, or EC2's reason code for terminating an instance (`give_up`)."""
    status: int = 500
    seconds: float | None = None
    """How long a call hangs (null: until the faults are cleared) or is delayed (null: one second)."""


@dataclass
class _Armed:
    fault: Fault
    left: int | None

    def is_meant_for(self, operation: str, instance_ids: Collection[str]) -> bool:
        named = self.fault.instance_id
        return self.fault.operation in ("*", operation) and (named is None or named in instance_ids)


@dataclass(frozen=True)
class Strike:
    """One call struck by one fault."""

    fault: Fault
    cleared: threading.Event

    def wait(self, default_seconds: float | None = None) -> None:
        """Wait as long as the fault says, or until faults are cleared. Never call it with the lock held."""
        self.cleared.wait(default_seconds if self.fault.seconds is None else self.fault.seconds)


class Faults:
    """The faults in force. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cleared = threading.Event()
        self._armed: list[_Armed] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._armed.append(_Armed(fault, fault.count))

    def clear(self) -> None:
        """End every fault, and release the calls that wait in one."""
        with self._lock:
            self._armed.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def strike(self, operation: str, instance_ids: Collection[str]) -> Strike | None:
        """The oldest fault meant for this call, used up by one; None if the call goes through."""
        with self._lock:
            for armed in self._armed:
                if armed.is_meant_for(operation, instance_ids):
                    break
            else:
                return None
            if armed.left is not None:
                armed.left -= 1
                if armed.left <= 0:
                    self._armed.remove(armed)
            return Strike(armed.fault, self._cleared)
