"""CML's own diary of what people did, read over REST while no live connection tells it.

The answer is always the whole diary, so each look must find what it has not counted yet: neither
before, nor by the live connection just before it broke or just after it came back, nor by whoever led
before and told the record.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from lcm.domain.telemetry import ACTIVITY_CATEGORIES, ActivityEvent

SLACK: Final = timedelta(seconds=5)
"""How far two notes of the same thing, here and there, may be apart."""
HEARD_LATE: Final = timedelta(seconds=120)
"""How much later than it happened an earlier leader may have heard of something: it may have been stopped."""
SAME_CLOCK: Final = timedelta(seconds=2)
"""A difference of clocks below this is rounding: the server's time comes in whole seconds."""
JITTER: Final = 2 * SLACK
"""How far two readings of one entry's time may be apart: each knows the server's clock only within SLACK."""

MAX_ID: Final = 64
"""Characters of an id, as in live frames; what is longer is none, and would be told with every report."""


class LiveActivity(NamedTuple):
    """A sign of people that was counted in another way than by reading the diary, and its number."""

    sequence: int
    event: ActivityEvent
    late_by: timedelta = timedelta(0)
    """How much earlier than we say it may have happened."""


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

    def __init__(self, since: datetime, recorded: Iterable[ActivityEvent] = ()) -> None:
        """What is in the record already is not news; neither is anything before `since`."""
        self._mark = since + SLACK
        self._recorded = [
            LiveActivity(-number, event, HEARD_LATE) for number, event in enumerate(recorded, start=1)
        ]
        self._counted: Counter[tuple[str, str, str | None]] = Counter()
        """Entries of the last answer, by their key. Those just before the window too: with the next reading
        of the server's clock they may fall into it."""
        self._noted: set[int] = set()
        """Events counted in another way, by their number, whose entry in the diary was met: one each."""

    def resume(self, heard_until: datetime) -> None:
        """Up to here the live connection told everything."""
        self._mark = max(self._mark, heard_until)

    def take_new(
        self,
        body: bytes,
        *,
        own_user_id: str | None,
        live: Sequence[LiveActivity],
        now: datetime,
        skew: timedelta,
    ) -> list[ActivityEvent]:
        """Signs of people that were not counted yet; the server's clock is ahead by `skew`.

        Raises MsgspecError if the diary makes no sense.
        """
        window_start = self._mark - SLACK
        notes = [
            note
            for note in _notes(_entries.decode(body), own_user_id, skew, now)
            if note.event.at > window_start - JITTER
        ]
        seen_now: Counter[tuple[str, str, str | None]] = Counter()
        unread: list[ActivityEvent] = []
        for note in sorted(notes, key=lambda note: note.event.at):
            seen_now[note.key] += 1
            if seen_now[note.key] > self._counted[note.key] and note.event.at > window_start:
                unread.append(note.event)
        self._counted = seen_now
        self._mark = max([self._mark, *(note.event.at for note in notes)])
        return self._leave_out(unread, [*self._recorded, *live])

    def _leave_out(
        self, unread: Sequence[ActivityEvent], told: Sequence[LiveActivity]
    ) -> list[ActivityEvent]:
        """Those that were not told in another way."""
        self._noted &= {other.sequence for other in told}
        candidates = [
            sorted(
                (abs(other.event.at - event.at), other.sequence)
                for other in told
                if other.sequence not in self._noted and _may_be_same(event, other)
            )
            for event in unread
        ]
        entry_of = _paired(candidates)
        self._noted |= entry_of.keys()
        met = set(entry_of.values())
        return [event for place, event in enumerate(unread) if place not in met]


def _paired(candidates: Sequence[Sequence[tuple[timedelta, int]]]) -> dict[int, int]:
    """Which entry, by its place, each told event is about: the closest first.

    Clocks of two leaders that differ by seconds can make an entry look closer to the deed after its own.
    So a pair with a recorded event that is in the way of another one is taken apart again if both can be
    served: every recorded event has its entry here. Of live ones some have theirs before the mark.
    """
    entry_of: dict[int, int] = {}

    def serve(place: int, asked: set[int]) -> bool:
        for _, sequence in candidates[place]:
            if sequence < 0 and sequence not in asked:
                asked.add(sequence)
                if sequence not in entry_of or serve(entry_of[sequence], asked):
                    entry_of[sequence] = place
                    return True
        return False

    pairs = sorted(
        (apart, place, sequence) for place, found in enumerate(candidates) for apart, sequence in found
    )
    served: set[int] = set()
    for _, place, sequence in pairs:
        if place not in served and sequence not in entry_of:
            served.add(place)
            entry_of[sequence] = place
    for place in range(len(candidates)):
        if place not in served:
            serve(place, set())
    return entry_of


def _may_be_same(entry: ActivityEvent, told: LiveActivity) -> bool:
    return (
        told.event.category == entry.category
        and -SLACK <= told.event.at - entry.at <= SLACK + told.late_by
        and entry.lab_id in (None, told.event.lab_id)
    )


def signs_of_people(
    body: bytes, *, own_user_id: str | None, now: datetime, server_now: datetime | None
) -> list[ActivityEvent]:
    """Everything in the diary that people did, counted or not. Raises MsgspecError if it makes no sense."""
    skew = clock_skew(now, now, server_now) or timedelta(0)
    return [note.event for note in _notes(_entries.decode(body), own_user_id, skew, now)]


def clock_skew(asked_at: datetime, now: datetime, server_now: datetime | None) -> timedelta | None:
    """How far the server's clock is ahead of ours; its answer was written between the question and now.

    None if that cannot be told: the answer took long, or we were stopped before we read it.
    """
    if server_now is None:
        return timedelta(0)
    at_least, at_most = server_now - now, server_now - asked_at
    if min(abs(at_least), abs(at_most)) < SAME_CLOCK:
        return timedelta(0)
    return at_least if at_most - at_least <= SLACK else None


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
            at = (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)) - skew
        except (ValueError, OverflowError):
            continue
        lab_id = details.lab_id
        if not isinstance(lab_id, str) or len(lab_id) > MAX_ID:
            lab_id = None
        event = ActivityEvent(category=entry.category, at=min(at, now), lab_id=lab_id)
        yield _Note(event, (entry.category, entry.timestamp, lab_id))
