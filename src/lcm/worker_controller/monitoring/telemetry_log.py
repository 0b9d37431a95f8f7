"""CML's own diary of what people did, read over REST while no live connection tells it.

The answer is always the whole diary, so each look must find what it has not counted yet: neither
before, nor by the live connection just before it broke or just after it came back.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from lcm.domain.live import ACTIVITY_CATEGORIES, ActivityEvent

SLACK: Final = timedelta(seconds=5)
"""How far two notes of the same thing, here and there, may be apart."""
SAME_CLOCK: Final = timedelta(seconds=2)
"""A difference of clocks below this is rounding: the server's time comes in whole seconds."""


class LiveActivity(NamedTuple):
    """A sign of people that the live connection told, and its number."""

    sequence: int
    event: ActivityEvent


class _Details(msgspec.Struct, frozen=True):
    user_id: Any = None
    lab_id: Any = None


class _Entry(msgspec.Struct, frozen=True):
    category: Any = None
    timestamp: Any = None
    data: _Details | None = None


_entries = msgspec.json.Decoder(list[_Entry])


class _Note(NamedTuple):
    """An entry that may count; `key` tells it from others of the same moment, as far as possible."""

    event: ActivityEvent
    key: tuple[str, str, str | None]


class TelemetryLog:
    """What was counted so far of one worker's diary."""

    def __init__(self, since: datetime) -> None:
        self._mark = since + SLACK
        self._counted: Counter[tuple[str, str, str | None]] = Counter()
        self._noted_live: set[int] = set()
        """Live events, by their number, whose entry in the diary was met: one entry each."""

    def resume(self, lost_at: datetime) -> None:
        """Up to here the live connection told everything."""
        self._mark = max(self._mark, lost_at)

    def take_new(
        self,
        body: bytes,
        *,
        own_user_id: str | None,
        live: Sequence[LiveActivity],
        now: datetime,
        server_now: datetime | None,
    ) -> list[ActivityEvent]:
        """Signs of people that were not counted yet. Raises MsgspecError if the diary makes no sense."""
        skew = _skew(now, server_now)
        window_start = self._mark - SLACK
        notes = [
            note
            for note in _notes(_entries.decode(body), own_user_id, skew, now)
            if note.event.at > window_start
        ]
        self._noted_live &= {told.sequence for told in live}
        seen_now: Counter[tuple[str, str, str | None]] = Counter()
        fresh: list[ActivityEvent] = []
        for note in sorted(notes, key=lambda note: note.event.at):
            seen_now[note.key] += 1
            if seen_now[note.key] <= self._counted[note.key]:
                continue
            same = self._told_live_as(note.event, live)
            if same is None:
                fresh.append(note.event)
            else:
                self._noted_live.add(same.sequence)
        self._counted = seen_now
        self._mark = max([self._mark, *(note.event.at for note in notes)])
        return fresh

    def _told_live_as(self, event: ActivityEvent, live: Sequence[LiveActivity]) -> LiveActivity | None:
        """The live event that this entry is about, if it is about one."""
        candidates = [
            told
            for told in live
            if told.sequence not in self._noted_live
            and told.event.category == event.category
            and abs(told.event.at - event.at) <= SLACK
            and event.lab_id in (None, told.event.lab_id)
        ]
        return min(candidates, key=lambda told: abs(told.event.at - event.at), default=None)


def signs_of_people(
    body: bytes, *, own_user_id: str | None, now: datetime, server_now: datetime | None
) -> list[ActivityEvent]:
    """Everything in the diary that people did, counted or not. Raises MsgspecError if it makes no sense."""
    return [note.event for note in _notes(_entries.decode(body), own_user_id, _skew(now, server_now), now)]


def _skew(now: datetime, server_now: datetime | None) -> timedelta:
    skew = server_now - now if server_now is not None else timedelta(0)
    return skew if abs(skew) >= SAME_CLOCK else timedelta(0)


def _notes(
    entries: Iterable[_Entry], own_user_id: str | None, skew: timedelta, now: datetime
) -> Iterable[_Note]:
    for entry in entries:
        if not (isinstance(entry.category, str) and isinstance(entry.timestamp, str)):
            continue
        if entry.category not in ACTIVITY_CATEGORIES:
            continue
        details = entry.data or _Details()
        # Our own looks are in the diary too. Who cannot tell people from himself counts nobody.
        if entry.category == "user_activity" and own_user_id in (None, details.user_id):
            continue
        try:
            at = datetime.fromisoformat(entry.timestamp)
        except ValueError:
            continue
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        lab_id = details.lab_id if isinstance(details.lab_id, str) else None
        event = ActivityEvent(category=entry.category, at=min(at - skew, now), lab_id=lab_id)
        yield _Note(event, (entry.category, entry.timestamp, lab_id))
