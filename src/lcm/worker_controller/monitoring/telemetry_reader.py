"""CML's telemetry read in pieces: it is one JSON array of all that ever happened, without paging.

Kept are the entries that may be activity, so that a server with a long past costs neither memory nor a long
break of the event loop; and both have a bound.
"""

import codecs
import json
import re
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from lcm.cml.connection import CmlAnswer
from lcm.cml.session import CmlSession
from lcm.domain.errors import Unreachable
from lcm.domain.telemetry import ACTIVITY_CATEGORIES
from lcm.worker_controller.monitoring.telemetry_log import RawEntry, time_of

TELEMETRY_PATH: Final = "/api/v0/telemetry/events"
TELEMETRY_STATE_PATH: Final = "/api/v0/telemetry"
MAX_BYTES: Final = 1024 * 1024 * 1024
MAX_ENTRY_CHARS: Final = 1024 * 1024
MAX_ENTRIES: Final = 200_000
"""Entries that may be activity."""

_GAP: Final = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


class InvalidTelemetry(Unreachable):
    """CML's telemetry is not what it should be: it proves nothing."""


class Telemetry(NamedTuple):
    """What is kept of an answer."""

    entries: list[RawEntry]
    """Those that may be activity."""
    newest_at: datetime | None
    """When the newest entry of any category was recorded, by the server's clock."""


class _Expect(Enum):
    """What comes next, besides gaps, and the signs it may begin with."""

    ARRAY = "["
    FIRST_ENTRY = "{]"
    ENTRY = "{"
    COMMA = ",]"
    NOTHING = ""


class TelemetryReader:
    """Takes the pieces of one answer. Both methods raise InvalidTelemetry."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._entries: list[RawEntry] = []
        self._newest_at: datetime | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""
        self._size = 0
        self._expected = _Expect.ARRAY

    def feed(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise InvalidTelemetry(f"CML's telemetry is longer than {self._max_bytes >> 20} MiB")
        try:
            self._read(self._rest + self._decode(piece))
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidTelemetry(f"CML sent an invalid answer: {error}") from None

    def finish(self) -> Telemetry:
        """Return what is kept, once everything was fed."""
        if self._expected is not _Expect.NOTHING:
            raise InvalidTelemetry("CML sent an invalid answer: its telemetry is cut off")
        return Telemetry(self._entries, self._newest_at)

    def _read(self, text: str) -> None:
        at = _skip_gap(text, 0)
        while at < len(text):
            if text[at] not in self._expected.value:
                raise ValueError(f"{text[at]!r} where one of {self._expected.value!r} should be")
            if text[at] == "{":
                try:
                    entry, at = _decoder.raw_decode(text, at)
                except json.JSONDecodeError:
                    if len(text) - at > MAX_ENTRY_CHARS:
                        raise
                    break  # its end is in a later piece
                self._take(entry)
                self._expected = _Expect.COMMA
            else:
                self._expected = _AFTER[text[at]]
                at += 1
            at = _skip_gap(text, at)
        self._rest = text[at:]

    def _take(self, entry: dict[str, object]) -> None:
        at = time_of(entry.get("timestamp"))
        if at is not None and (self._newest_at is None or at > self._newest_at):
            self._newest_at = at
        category = entry.get("category")
        if isinstance(category, str) and category in ACTIVITY_CATEGORIES:
            self._entries.append(msgspec.convert(entry, RawEntry))
            if len(self._entries) > self._max_entries:
                raise ValueError(f"more than {self._max_entries} entries of activity")


_AFTER: Final = {"[": _Expect.FIRST_ENTRY, ",": _Expect.ENTRY, "]": _Expect.NOTHING}


def _skip_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    assert gap is not None, "it matches nothing too"
    return gap.end()


def parse_telemetry(body: bytes) -> Telemetry:
    """The same of a whole answer."""
    reader = TelemetryReader()
    reader.feed(body)
    return reader.finish()


async def read_telemetry(session: CmlSession, timeout_seconds: float) -> tuple[CmlAnswer, Telemetry]:
    """Return the answer, without its body, and what is kept of that."""
    reader = TelemetryReader()
    answer = await session.get(TELEMETRY_PATH, timeout_seconds=timeout_seconds, on_piece=reader.feed)
    return answer, reader.finish()
