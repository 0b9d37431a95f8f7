"""People are warned ten and five minutes before their session ends: once each, and again of a later end."""

import json
from datetime import datetime, timedelta
from typing import Any

from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.streaming.encoding import EVERYTHING
from lcm.control_plane.streaming.event_names import SessionEvent, session_event_of
from lcm.domain.lablet.ending import warn_of_end
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import READY, RUNNING
from support.lablet_bench import LabletBench
from support.people import iso

Warning_ = tuple[datetime, int | None]


class Classroom(LabletBench):
    """A session that runs, and a scheduler that scans the windows when the last scan says so."""

    async def running(self, minutes: float = 60) -> "Classroom":
        self.warnings: list[Warning_] = []
        await self.open(timeslot=self.slot(in_minutes=10, minutes=minutes))
        self.listen()
        await self.drive(RUNNING)
        return self

    def listen(self) -> None:
        self.records.sessions.subscribe(self._note_warning)

    def _note_warning(self, before: LabletSession | None, after: LabletSession) -> None:
        if session_event_of(before, after) is SessionEvent.ENDING_SOON:
            self.warnings.append((self.clock.now(), after.ending_soon_minutes))

    async def scan_until(self, end: datetime) -> None:
        while self.clock.now() < end:
            moved = await move_windows(self.records, self.policies, by="scheduler")
            assert moved.next_at is not None
            await self.clock.sleep((min(moved.next_at, end) - self.clock.now()).total_seconds())

    async def ends_at(self) -> datetime:
        end = (await self.session()).ends_at
        assert end is not None
        return end

    async def view(self) -> Any:
        return (await self.operator.get(f"/api/lablet-sessions/{self.session_id}")).body


async def test_each_warning_is_given_once_exactly_at_its_time() -> None:
    room = await Classroom().running()
    end = await room.ends_at()
    assert (await room.view())["ending_soon_minutes"] is None
    await room.scan_until(end - timedelta(seconds=1))
    assert room.warnings == [(end - timedelta(minutes=10), 10), (end - timedelta(minutes=5), 5)]
    view = await room.view()
    assert (view["ending_soon_minutes"], view["ends_at"]) == (5, iso(end))


async def test_a_restart_of_the_control_plane_repeats_no_warning_and_loses_none() -> None:
    room = await Classroom().running()
    end = await room.ends_at()
    await room.scan_until(end - timedelta(minutes=9))
    room.restart()
    room.listen()
    await room.scan_until(end - timedelta(minutes=6))
    assert [minutes for _, minutes in room.warnings] == [10]
    room.restart()
    room.listen()
    await room.clock.sleep(90)
    await room.scan_until(end - timedelta(seconds=1))
    assert [minutes for _, minutes in room.warnings] == [10, 5]


async def test_after_an_outage_only_the_nearest_warning_is_given() -> None:
    room = await Classroom().running()
    end = await room.ends_at()
    await room.clock.sleep((end - room.clock.now()).total_seconds() - 200)
    await room.scan_until(end - timedelta(seconds=1))
    assert room.warnings == [(end - timedelta(seconds=200), 5)]


async def test_an_extension_takes_the_warning_back_and_the_later_end_is_announced_anew() -> None:
    room = await Classroom().running(minutes=40)
    first = await room.ends_at()
    await room.scan_until(first - timedelta(minutes=4))
    later = first + timedelta(minutes=20)
    answer = await room.operator.post(f"/api/lablet-sessions/{room.session_id}/extend", {"end": iso(later)})
    assert (answer.status, answer.body["ending_soon_minutes"]) == (202, None)
    await room.scan_until(later - timedelta(seconds=1))
    assert room.warnings[2:] == [(later - timedelta(minutes=10), 10), (later - timedelta(minutes=5), 5)]


async def test_nobody_is_warned_of_an_end_that_was_requested_or_before_the_timeslot_begins() -> None:
    room = Classroom()
    await room.open(timeslot=room.slot(in_minutes=10, minutes=8))
    session = await room.drive(READY)
    assert warn_of_end(session, now=room.clock.now()) is session
    session = await room.drive(RUNNING)
    assert warn_of_end(session, now=room.clock.now()).ending_soon_minutes == 10
    await room.end()
    session = await room.session()
    assert warn_of_end(session, now=room.clock.now()) is session


async def test_the_event_says_how_many_minutes_are_left() -> None:
    room = await Classroom().running(minutes=9)
    stream = room.parts.hub.stream(None, EVERYTHING)
    await anext(stream)
    await move_windows(room.records, room.policies, by="scheduler")
    seen = b""
    while b"lablet.session.ending_soon" not in seen:
        seen = await anext(stream)
    data = next(line for line in seen.decode().splitlines() if line.startswith("data:") and "minutes" in line)
    assert json.loads(data.removeprefix("data:"))["minutes"] == 10
    await stream.aclose()
