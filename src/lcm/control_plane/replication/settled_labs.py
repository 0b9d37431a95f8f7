"""The labs of sessions that have settled, as their workers report them: they wake the lablet controller.

A lab settles when its last node has booted, has stopped, or when it is deleted. An event that is lost costs a
few seconds: the lablet controller also polls the labs that it waits for.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from lcm.domain.telemetry import LabChange, LabRecord

ON_ITS_WAY: Final = frozenset({"QUEUED", "STARTED"})

_Lab = tuple[str, str]
"""Worker and lab."""


class SettledLabs:
    """How each lab has settled, until that is published."""

    def __init__(self, session_of_lab: Callable[[str, str], Awaitable[str | None]]) -> None:
        self._session_of_lab = session_of_lab
        self._pending: dict[_Lab, dict[str, Any]] = {}

    def add(self, changes: Sequence[LabChange], before: LabRecord | None, after: LabRecord | None) -> bool:
        """Return whether there is something to publish."""
        lab = after or before or next(iter(changes), None)
        if lab is None or (after is not None and _is_on_its_way(after)):
            return False
        self._pending[lab.worker_id, lab.lab_id] = _summary(lab.lab_id, after)
        return True

    async def take(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the sessions whose lab has settled, and how. Labs without a session are left out."""
        pending, self._pending = self._pending, {}
        owned = [(await self._session_of_lab(*lab), summary) for lab, summary in pending.items()]
        return [(session_id, summary) for session_id, summary in owned if session_id is not None]


def _is_on_its_way(lab: LabRecord) -> bool:
    return any(node.state in ON_ITS_WAY for node in lab.nodes.values())


def _summary(lab_id: str, lab: LabRecord | None) -> dict[str, Any]:
    """An equal summary wakes no controller."""
    nodes = Counter(sorted(_states(lab))) if lab is not None else {}
    return {"lab_id": lab_id, "state": lab.state if lab is not None else "deleted", "nodes": nodes}


def _states(lab: LabRecord) -> Iterator[str]:
    return (node.state for node in lab.nodes.values() if node.state is not None)
