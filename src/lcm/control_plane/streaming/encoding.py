"""Events in the wire format of the stream: encoded once for all subscribers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

PIECE_BYTES: Final = 32 * 1024
"""The size of a write to the server, which buffers up to 64 KB more before it waits."""
KEEPALIVE: Final = b": still here\n\n"


@dataclass(frozen=True)
class EventFilter:
    """The events that a subscriber wants; an empty field admits all."""

    worker_ids: frozenset[str] = frozenset()
    event_types: tuple[str, ...] = ()
    """Prefixes of event types."""
    include_system: bool = True
    is_batched: bool = False
    """Whether load comes in batches, instead of one event for each worker or lab."""
    owner_id: str | None = None
    """The only person whose lablet sessions are shown; None: those of all."""

    def wants_owner(self, owner_id: str | None) -> bool:
        return owner_id is None or self.owner_id is None or owner_id == self.owner_id

    def wants_type(self, event_type: str) -> bool:
        return not self.event_types or event_type.startswith(self.event_types)

    def wants_worker(self, worker_id: str | None) -> bool:
        return not self.worker_ids or worker_id in self.worker_ids


EVERYTHING: Final = EventFilter()


class Event:
    """One encoded event."""

    __slots__ = ("chunk", "event_type", "number", "owner_id", "worker_id")

    def __init__(
        self,
        number: int,
        event_type: str,
        worker_id: str | None,
        chunk: bytes,
        owner_id: str | None = None,
    ) -> None:
        self.number = number
        self.event_type = event_type
        self.worker_id = worker_id
        self.owner_id = owner_id
        """The person whose lablet session it is about."""
        self.chunk = chunk

    @property
    def size(self) -> int:
        return len(self.chunk)

    def chunk_for(self, wanted: EventFilter) -> bytes | None:
        is_wanted = wanted.wants_type(self.event_type) and wanted.wants_worker(self.worker_id)
        return self.chunk if is_wanted and wanted.wants_owner(self.owner_id) else None


class Load:
    """The newest load of workers or labs, as one event each, for subscribers that want no batches."""

    __slots__ = ("event_id", "event_type", "number", "parts", "size")

    def __init__(
        self, number: int, event_id: str, event_type: str, parts: Sequence[tuple[str, bytes]]
    ) -> None:
        self.number = number
        self.event_id = event_id
        self.event_type = event_type
        self.parts = parts
        self.size = sum(len(part) for _, part in parts)

    def chunk_for(self, wanted: EventFilter) -> bytes | None:
        if wanted.is_batched or not wanted.wants_type(self.event_type):
            return None
        parts = [part for worker_id, part in self.parts if wanted.wants_worker(worker_id)]
        return self.encode(parts, f"id: {self.event_id}\n") if parts else None

    def encode(self, parts: Sequence[bytes], head: str = "") -> bytes:
        """The last event carries the id: a browser that got only some of them is sent all again."""
        start = f"event: {self.event_type}\ndata: ".encode()
        *others, last = parts
        return b"".join(start + part + b"\n\n" for part in others) + head.encode() + start + last + b"\n\n"


class Batch:
    """Load events of one type sent together; each is encoded once, whichever filters select it."""

    __slots__ = ("_of_base_type", "_tail", "event_id", "event_type", "number", "parts", "size")

    def __init__(
        self,
        number: int,
        event_id: str,
        base_type: str,
        parts: Sequence[tuple[str, bytes]],
        batched_at: bytes,
    ) -> None:
        self.number = number
        self.event_id = event_id
        self.event_type = f"{base_type}.batch"
        self.parts = parts
        self.size = sum(len(part) for _, part in parts)
        self._of_base_type = base_type
        self._tail = b'],"batched_at":' + batched_at + b"}\n\n"

    def chunk_for(self, wanted: EventFilter) -> bytes | None:
        if not (wanted.is_batched and wanted.wants_type(self.event_type)):
            return None
        parts = [part for worker_id, part in self.parts if wanted.wants_worker(worker_id)]
        return self.encode(parts, f"id: {self.event_id}\n") if parts else None

    def encode(self, parts: Sequence[bytes], head: str = "") -> bytes:
        start = (
            f'{head}event: {self.event_type}\ndata: {{"batch_id":"{self.event_id}",'
            f'"event_type":"{self._of_base_type}","count":{len(parts)},"events":['
        )
        return start.encode() + b",".join(parts) + self._tail


def encode(event_type: str, data: Mapping[str, Any], event_id: str | None = None) -> bytes:
    """Return one event on the wire. JSON has no raw newlines, so one data line always suffices."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {event_type}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def in_pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in fewer, larger pieces."""
    collected: list[bytes] = []
    size = 0
    for chunk in chunks:
        if collected and size + len(chunk) > PIECE_BYTES:
            yield b"".join(collected)
            collected, size = [], 0
        collected.append(chunk)
        size += len(chunk)
    if collected:
        yield b"".join(collected)
