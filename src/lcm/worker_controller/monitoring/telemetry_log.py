"""CML's telemetry of activity, read by REST while no WebSocket connection delivers it.

The answer is always the whole telemetry, so each poll must find the entries that were not counted yet:
neither by an earlier poll, nor by the WebSocket just before it broke or just after it came back, nor by an
earlier leader that reported them to the record.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from lcm.domain.telemetry import ACTIVITY_CATEGORIES, ActivityEvent

SLACK: Final = timedelta(seconds=5)
"""How far the times of one event, in the telemetry and in a frame, may be apart."""
RECEIVED_LATE: Final = timedelta(seconds=120)
"""How late an earlier leader may have received an event: its process may have been stopped."""
SAME_CLOCK: Final = timedelta(seconds=2)
"""A difference of clocks below this is rounding: the server's time comes in whole seconds."""
JITTER: Final = 2 * SLACK
"""How far two readings of one entry's time may be apart: each knows the server's clock only within SLACK."""

RECORDING_WITHIN: Final = timedelta(minutes=10)
"""CML records that LCM asks it every minute: telemetry without an entry for so long may be off."""

MAX_ID: Final = 64
"""Characters of an id, as in frames; a longer one is invalid and would enlarge every report."""


class LiveActivity(NamedTuple):
    """An activity event that was not counted from the telemetry, and its number."""

    sequence: int
    event: ActivityEvent
    late_by: timedelta = timedelta(0)
    """How much earlier than its time it may have happened."""


class _Details(msgspec.Struct, frozen=True):
    user_id: Any = None
    lab_id: Any = None


class RawEntry(msgspec.Struct, frozen=True):
    """An entry of the telemetry, as far as it matters."""

    category: Any = None
    timestamp: Any = None
    data: _Details | None = None


class _ActivityEntry(NamedTuple):
    """An entry that may count; `key` distinguishes it from others of the same time, as far as possible."""

    event: ActivityEvent
    key: tuple[str, str, str | None]


class TelemetryLog:
    """The entries of one worker's telemetry that were counted so far."""

    def __init__(self, since: datetime, recorded: Iterable[ActivityEvent] = ()) -> None:
        """Events that the record holds are not counted again, nor is anything before `since`."""
        self._mark = since + SLACK
        self._recorded = [
            LiveActivity(-number, event, RECEIVED_LATE) for number, event in enumerate(recorded, start=1)
        ]
        self._counted: Counter[tuple[str, str, str | None]] = Counter()
        """Entries of the last answer, by their key. Those just before the window too: with the next estimate
        of the server's clock they may fall into it."""
        self._matched: set[int] = set()
        """Numbers of the live events that were matched with an entry of the telemetry: one each."""

    def resume(self, received_until: datetime) -> None:
        """Skip entries up to here: the WebSocket delivered them."""
        self._mark = max(self._mark, received_until)

    def take_new(
        self,
        answer: Iterable[RawEntry],
        *,
        own_user_id: str | None,
        live: Sequence[LiveActivity],
        now: datetime,
        skew: timedelta,
    ) -> list[ActivityEvent]:
        """Activity events that were not counted yet; the server's clock is ahead by `skew`."""
        window_start = self._mark - SLACK
        entries = [
            entry
            for entry in _activity_entries(answer, own_user_id, skew, now)
            if entry.event.at > window_start - JITTER
        ]
        seen_now: Counter[tuple[str, str, str | None]] = Counter()
        unread: list[ActivityEvent] = []
        for entry in sorted(entries, key=lambda entry: entry.event.at):
            seen_now[entry.key] += 1
            if seen_now[entry.key] > self._counted[entry.key] and entry.event.at > window_start:
                unread.append(entry.event)
        self._counted = seen_now
        self._mark = max([self._mark, *(entry.event.at for entry in entries)])
        return self._leave_out(unread, [*self._recorded, *live])

    def _leave_out(
        self, unread: Sequence[ActivityEvent], counted: Sequence[LiveActivity]
    ) -> list[ActivityEvent]:
        """The events without those that were counted live."""
        self._matched &= {other.sequence for other in counted}
        candidates = [
            sorted(
                (abs(other.event.at - event.at), other.sequence)
                for other in counted
                if other.sequence not in self._matched and _may_be_same(event, other)
            )
            for event in unread
        ]
        entry_of = _paired(candidates)
        self._matched |= entry_of.keys()
        matched = set(entry_of.values())
        return [event for place, event in enumerate(unread) if place not in matched]


def _paired(candidates: Sequence[Sequence[tuple[timedelta, int]]]) -> dict[int, int]:
    """Match each counted event with an entry, by its index: the closest first.

    Clocks of two leaders that differ by seconds can make an entry appear closer to the event after its own.
    So a match with a recorded event that blocks another one is undone if both can be matched otherwise:
    every recorded event has its entry here. Of live ones some have theirs before the mark.
    """
    entry_of: dict[int, int] = {}

    def serve(place: int, tried: set[int]) -> bool:
        for _, sequence in candidates[place]:
            if sequence < 0 and sequence not in tried:
                tried.add(sequence)
                if sequence not in entry_of or serve(entry_of[sequence], tried):
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


def _may_be_same(entry: ActivityEvent, counted: LiveActivity) -> bool:
    return (
        counted.event.category == entry.category
        and -SLACK <= counted.event.at - entry.at <= SLACK + counted.late_by
        and entry.lab_id in (None, counted.event.lab_id)
    )


def activity_in_telemetry(
    answer: Iterable[RawEntry], *, own_user_id: str | None, now: datetime, server_now: datetime | None
) -> list[ActivityEvent]:
    """All activity in the telemetry, counted or not."""
    skew = clock_skew(now, now, server_now) or timedelta(0)
    return [entry.event for entry in _activity_entries(answer, own_user_id, skew, now)]


def is_recording(newest_at: datetime | None, *, now: datetime, server_now: datetime | None) -> bool:
    """Whether the newest entry of any category, by the server's clock, proves that CML records telemetry."""
    skew = clock_skew(now, now, server_now) or timedelta(0)
    return newest_at is not None and newest_at >= now + skew - RECORDING_WITHIN


class _Telemetry(msgspec.Struct, frozen=True):
    opt_in: bool | str | None = None


def is_switched_on(body: bytes) -> bool:
    """What the body of `GET /telemetry` says; raises MsgspecError if it is invalid."""
    return msgspec.json.decode(body, type=_Telemetry).opt_in in (True, "accepted")


def clock_skew(asked_at: datetime, now: datetime, server_now: datetime | None) -> timedelta | None:
    """How far the server's clock is ahead of ours; its answer was written between the request and now.

    None if that is unknown: the answer took long, or the process was stopped before it read it.
    """
    if server_now is None:
        return timedelta(0)
    at_least, at_most = server_now - now, server_now - asked_at
    if min(abs(at_least), abs(at_most)) < SAME_CLOCK:
        return timedelta(0)
    return at_least if at_most - at_least <= SLACK else None


def time_of(timestamp: object, skew: timedelta = timedelta(0)) -> datetime | None:
    """When an entry was recorded, without the skew by the server's clock; None if that cannot be read."""
    if not isinstance(timestamp, str):
        return None
    try:
        at = datetime.fromisoformat(timestamp)
        return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)) - skew
    except (ValueError, OverflowError):
        return None


def _activity_entries(
    entries: Iterable[RawEntry], own_user_id: str | None, skew: timedelta, now: datetime
) -> Iterable[_ActivityEntry]:
    for entry in entries:
        if not (isinstance(entry.category, str) and isinstance(entry.timestamp, str)):
            continue
        if entry.category not in ACTIVITY_CATEGORIES:
            continue
        details = entry.data or _Details()
        # LCM's own requests are in the telemetry too. Without its own user id none of these can count.
        if entry.category == "user_activity" and own_user_id in (None, details.user_id):
            continue
        at = time_of(entry.timestamp, skew)
        if at is None:
            continue
        lab_id = details.lab_id
        if not isinstance(lab_id, str) or len(lab_id) > MAX_ID:
            lab_id = None
        event = ActivityEvent(category=entry.category, at=min(at, now), lab_id=lab_id)
        yield _ActivityEntry(event, (entry.category, entry.timestamp, lab_id))
