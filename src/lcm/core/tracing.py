"""The trace of the current work and the fields of its log lines, bound in one place.

Traces are named as W3C Trace Context names them, and travel to other processes in the header `traceparent`. A
name is made up only when it is needed: work that logs nothing and calls no other process pays nothing for it.
"""

import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from lcm.core.ids import Ids

TRACEPARENT_HEADER: Final = "traceparent"

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


class TraceContext:
    """One piece of work: a reconcile, a request."""

    __slots__ = ("_ids", "_span_id", "_trace_id", "fields")

    def __init__(self, ids: Ids, fields: Mapping[str, Any], trace_id: str | None = None) -> None:
        self._ids = ids
        self.fields = fields
        self._trace_id = trace_id
        self._span_id: str | None = None

    @property
    def trace_id(self) -> str:
        if self._trace_id is None:
            self._trace_id = self._ids.new_id().replace("-", "")
        return self._trace_id

    @property
    def traceparent(self) -> str:
        """The header for a called process: the same trace, this work as the caller. No spans are kept."""
        if self._span_id is None:
            self._span_id = self._ids.new_id().replace("-", "")[:16]
        return f"00-{self.trace_id}-{self._span_id}-00"

    def part(self, fields: Mapping[str, Any]) -> "TraceContext":
        """Work inside this work, in a trace of its own."""
        return TraceContext(self._ids, {**self.fields, **fields})


_doing: ContextVar[TraceContext | None] = ContextVar("doing", default=None)


def current() -> TraceContext | None:
    return _doing.get()


def begin(ids: Ids, fields: Mapping[str, Any]) -> None:
    """From here to the end of this task, or until it begins something else, this is what is done.

    What is known of the work around it stays known.
    """
    around = _doing.get()
    _doing.set(TraceContext(ids, {**around.fields, **fields} if around is not None else fields))


def begin_part(**fields: Any) -> None:
    """Like `begin`, for a task of its own that is a part of what is done now; nothing if nothing is done."""
    around = _doing.get()
    if around is not None:
        _doing.set(around.part(fields))


@contextmanager
def doing(work: TraceContext) -> Iterator[TraceContext]:
    """This is what is done inside the block."""
    token = _doing.set(work)
    try:
        yield work
    finally:
        _doing.reset(token)


@contextmanager
def span(**fields: Any) -> Iterator[None]:
    """Inside the block, a part of what is done now, in a trace of its own; nothing if nothing is done."""
    around = _doing.get()
    if around is None:
        yield
        return
    with doing(around.part(fields)):
        yield


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace that a caller names; None if it names none, or none that makes sense."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return match[1] if match else None


def add_what_is_done(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog's: what a line says itself wins."""
    work = _doing.get()
    if work is not None:
        for name, value in work.fields.items():
            event.setdefault(name, value)
        event.setdefault("trace_id", work.trace_id)
    return event
