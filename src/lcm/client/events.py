"""The event stream without any I/O: bytes in, events out.

What an event carries is loaded when it is asked for: a command that waits for a worker needs no sessions.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from lcm.rest.lablets import LabletSessionView
    from lcm.rest.schemas import WorkerView

T = TypeVar("T")

LISTENING: Final = "listening"
"""An event of the client's own: a connection is open, and what was published since the last one follows."""


class Event:
    """One event: its type, such as `worker.status.updated`, its id, and its data."""

    __slots__ = ("_data", "id", "type")

    def __init__(self, event_type: str, data: bytes, event_id: str | None = None) -> None:
        self.type = event_type
        self.id = event_id
        self._data = data

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self._data) if self._data else None

    @property
    def worker(self) -> "WorkerView | None":
        """The worker, if the event carries one."""
        from lcm.rest.schemas import WorkerView

        return self._part("worker", WorkerView)

    @property
    def session(self) -> "LabletSessionView | None":
        """The lablet session, if the event carries one."""
        from lcm.rest.lablets import LabletSessionView

        return self._part("session", LabletSessionView)

    def _part(self, name: str, kind: type[T]) -> T | None:
        part = msgspec.json.decode(self._data, type=dict[str, msgspec.Raw]).get(name)
        return msgspec.json.decode(part, type=kind) if part is not None else None


class EventParser:
    """Reads server-sent events; a piece may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._type = ""
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self._type = value.decode()
            elif name == b"id":
                self._id = value.decode()
            elif name == b"data":
                self._data.append(value)
            elif not line.strip() and self._data:
                yield Event(self._type or "message", b"\n".join(self._data), self._id)
                self._type, self._id, self._data = "", None, []
