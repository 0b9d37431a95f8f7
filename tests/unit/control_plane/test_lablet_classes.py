"""Classes: many sessions from one record. What the event stream and the audit log say of sessions."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from lcm.control_plane.commands.lablets.archive_sessions import Archive, keep_lablet_records
from lcm.control_plane.commands.lablets.report_waiting import report_waiting
from lcm.control_plane.streaming.encoding import EventFilter
from lcm.core.timeouts import timeout
from lcm.domain.lablet.session import WaitCode, seat_id
from lcm.domain.lablet.states import FAILED
from lcm.rest.lablets import Waiting
from support.people import PublicDesk
from unit.control_plane.test_lablet_sessions import SERVICE, fail, fence_of, killed_desk, place

PATH = "/api/lablet-sessions/batch"


@pytest.fixture
async def desk() -> PublicDesk:
    desk = await PublicDesk().open()
    await desk.define()
    return desk


def a_class(count: int = 30, **fields: Any) -> dict[str, Any]:
    return {"definition": "branch", "name": "CCNA 9:00", "count": count, **fields}


async def create(desk: PublicDesk, count: int = 30, **fields: Any) -> dict[str, Any]:
    made = await desk.operator.post(PATH, a_class(count, **fields))
    assert made.status == 202, made.text
    return dict(made.body["batch"])


async def test_thirty_seats_at_nine_are_thirty_sessions_of_the_caller(desk: PublicDesk) -> None:
    slot = desk.slot(in_minutes=600)
    made = await desk.operator.post(PATH, a_class(timeslot=slot, all_or_nothing=True))
    batch = made.body["batch"]
    assert (made.status, batch["size"], batch["counts"]) == (202, 30, {"pending": 30})
    assert batch["is_all_or_nothing"]
    assert made.body["forecast"]["workers_needed"] >= 1
    assert [each["batch"]["index"] for each in batch["sessions"]] == list(range(30))
    assert {each["owner_id"] for each in batch["sessions"]} == {desk.operator.id}
    got = await desk.operator.get(f"/api/lablet-batches/{batch['id']}")
    assert got.body == batch
    listed = (await desk.operator.get(f"/api/lablet-sessions?batch_id={batch['id']}")).body
    assert len(listed["items"]) == 30


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"count": 201}, "`int` <= 200"),
        ({"count": 0}, "`int` >= 1"),
        ({"owners": ["a", "b"]}, "owners names 2 for 30 seats; name one per seat"),
        ({"owners": ["\x00"] * 30}, "owners"),
        ({"name": " x"}, "name"),
    ],
)
async def test_a_bad_class_is_refused_with_what_to_do_and_nothing_is_recorded(
    desk: PublicDesk, fields: Any, says: str
) -> None:
    before = await desk.documents()
    refused = await desk.operator.post(PATH, {**a_class(), **fields})
    assert (refused.status, refused.kind) == (422, "invalid")
    assert says in refused.body["detail"]
    assert await desk.documents() == before


async def test_a_viewer_sees_own_seats_of_a_class_and_no_other_class(desk: PublicDesk) -> None:
    mixed = await create(desk, 3, owners=[desk.viewer.id, "bob", desk.viewer.id])
    foreign = await create(desk, 2)
    seen = await desk.viewer.get(f"/api/lablet-batches/{mixed['id']}")
    assert [each["batch"]["index"] for each in seen.body["sessions"]] == [0, 2]
    assert seen.body["counts"] == {"pending_scheduling": 2}
    hidden = await desk.viewer.get(f"/api/lablet-batches/{foreign['id']}")
    assert (hidden.status, hidden.kind) == (404, "not-found")


async def test_a_repeated_request_with_a_key_creates_one_class(desk: PublicDesk) -> None:
    first = await desk.operator.post(PATH, a_class(5), idempotency_key="k")
    again = await desk.operator.post(PATH, a_class(5), idempotency_key="k")
    assert (again.status, again.body["batch"]) == (202, first.body["batch"])
    other = await desk.operator.post(PATH, a_class(6), idempotency_key="k")
    assert (other.status, other.kind) == (422, "key-reused")
    assert len(await desk.records.sessions.list_all()) == 5


@pytest.mark.parametrize("number", [1, 2, 5])
async def test_a_class_that_a_crash_interrupted_is_completed(number: int) -> None:
    desk, store = await killed_desk()
    store.kill_at("lablet-session", number)
    slot = desk.slot(in_minutes=60)
    assert (await desk.operator.post(PATH, a_class(5, timeslot=slot))).status == 500
    desk.restart()
    (batch,) = await desk.records.batches.list_all()
    await desk.clock.sleep(61 * 60)
    await keep_lablet_records(desk.records, desk.policies)
    sessions = await desk.records.sessions.list_all()
    assert {each.id for each in sessions} == {seat_id(batch.id, index) for index in range(5)}
    assert (await desk.records.batches.get(batch.id)).is_complete


async def test_ending_a_class_ends_every_seat_also_the_placed_ones(desk: PublicDesk) -> None:
    batch = await create(desk, 4)
    await place(desk, batch["sessions"][0]["id"])
    ended = await desk.operator.post(f"/api/lablet-batches/{batch['id']}/end")
    assert (ended.status, ended.body["counts"]) == (202, {"terminated": 4})
    assert (await desk.records.workers.get("w1")).claims == ()
    again = await desk.operator.post(f"/api/lablet-batches/{batch['id']}/end", idempotency_key="k")
    assert (again.status, again.body) == (202, ended.body)


async def test_the_end_of_a_class_that_a_crash_interrupted_is_finished() -> None:
    desk, store = await killed_desk()
    batch = await create(desk, 4)
    store.kill_at("lablet-session", 2)
    assert (await desk.operator.post(f"/api/lablet-batches/{batch['id']}/end")).status == 500
    desk.restart()
    await desk.clock.sleep(61)
    await keep_lablet_records(desk.records, desk.policies)
    view = await desk.operator.get(f"/api/lablet-batches/{batch['id']}")
    assert view.body["counts"] == {"terminated": 4}


async def test_a_class_is_shown_with_archived_and_retried_seats_until_they_are_removed(
    desk: PublicDesk,
) -> None:
    batch = await create(desk, 2, all_or_nothing=True)
    seats = [each["id"] for each in batch["sessions"]]
    await fail(desk, seats[0])
    retried = (await desk.operator.post(f"/api/lablet-sessions/{seats[0]}/retry")).body
    assert retried["batch"] == {**batch["sessions"][0]["batch"], "is_all_or_nothing": False}
    await desk.operator.post(f"/api/lablet-sessions/{seats[1]}/end")
    await desk.clock.sleep(2 * 3600)
    archive = Archive(desk.records)
    await archive.run_pass()
    view = (await desk.operator.get(f"/api/lablet-batches/{batch['id']}")).body
    assert [each["id"] for each in view["sessions"]] == [seats[0], retried["id"], seats[1]]
    assert view["counts"] == {"failed": 1, "pending_scheduling": 1, "terminated": 1}
    await desk.operator.post(f"/api/lablet-batches/{batch['id']}/end")
    await desk.clock.sleep(31 * 24 * 3600)
    await archive.run_pass()
    assert (await desk.operator.get(f"/api/lablet-batches/{batch['id']}")).status == 404


# The audit log.


async def test_the_audit_log_is_filtered_and_paged_newest_first(desk: PublicDesk) -> None:
    made = (await desk.viewer.get("/api/lablet-definitions/by-name/branch")).body
    await desk.clock.sleep(1)
    session = await desk.book()
    await desk.clock.sleep(1)
    await desk.operator.post(f"/api/lablet-sessions/{session['id']}/end")
    await desk.clock.sleep(1)
    other = await desk.book()
    await fail(desk, other["id"])
    entries = (await desk.operator.get("/api/lablet-audit")).body["items"]
    assert [each["event"] for each in entries][-3:] == [
        "session_ended",
        "session_created",
        "definition_created",
    ]
    assert {each["definition_id"] for each in entries} == {made["id"]}
    of_one = (await desk.operator.get(f"/api/lablet-audit?session_id={session['id']}")).body["items"]
    assert [each["event"] for each in of_one] == ["session_ended", "session_created"]
    assert of_one[1]["by"] == "operator"
    failed = (await desk.operator.get("/api/lablet-audit?event=session_failed")).body["items"]
    assert [each["session_id"] for each in failed] == [other["id"]]
    seen, path = [], "/api/lablet-audit?limit=1"
    while path:
        page = (await desk.operator.get(path)).body
        seen += page["items"]
        path = f"/api/lablet-audit?limit=1&after={page['next']}" if page["next"] else ""
    assert seen == entries


# The event stream.


async def opening(desk: PublicDesk, owner_id: str | None = None) -> list[tuple[str, Any]]:
    """What a browser gets before anything happens."""
    stream = desk.parts.hub.stream(None, EventFilter(owner_id=owner_id))
    events = await _read(stream)
    await stream.aclose()
    return events


async def _read(stream: AsyncIterator[bytes]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    expected = 1
    while len(found) < expected:
        for part in (await anext(stream)).decode().strip().split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in part.splitlines())
            found.append((fields["event"], json.loads(fields["data"])))
        first = found[0][1]
        expected = 1 + first["workers"] + (first["sessions"] + 49) // 50
    return found


def sessions_in(events: list[tuple[str, Any]]) -> list[str]:
    return [
        each["id"] for kind, data in events if kind == "lablet.sessions.snapshot" for each in data["sessions"]
    ]


async def test_a_stream_begins_with_the_sessions_that_its_reader_may_see(desk: PublicDesk) -> None:
    batch = await create(desk, 60, owners=[desk.viewer.id] + ["bob"] * 59)
    ids = [each["id"] for each in batch["sessions"]]
    assert sorted(sessions_in(await opening(desk))) == sorted(ids)
    assert sessions_in(await opening(desk, desk.viewer.id)) == [ids[0]]
    await desk.operator.post(f"/api/lablet-sessions/{ids[0]}/end")
    (shown,) = [
        data for kind, data in await opening(desk, desk.viewer.id) if kind.endswith("sessions.snapshot")
    ]
    assert [each["status"] for each in shown["sessions"]] == ["terminated"]


async def test_a_stream_that_begins_after_a_restart_has_the_sessions_too(desk: PublicDesk) -> None:
    session = await desk.book()
    desk.restart()
    assert sessions_in(await opening(desk)) == [session["id"]]
    await desk.operator.post(f"/api/lablet-sessions/{session['id']}/end")
    await desk.clock.sleep(2 * 3600)
    await Archive(desk.records).run_pass()
    assert sessions_in(await opening(desk)) == []


async def test_a_reset_shows_what_another_control_plane_committed_unseen(desk: PublicDesk) -> None:
    stream = desk.parts.hub.stream(None)
    await _read(stream)
    stranger = PublicDesk(store=desk.store)
    stranger.clock, stranger.ids = desk.clock, desk.ids
    stranger.restart()
    session = await stranger.book()
    desk.parts.hub.on_sessions_unseen()
    desk.parts.hub.reset_all("a gap")
    events = await _read(stream)
    assert events[0][0] == "reset"
    assert sessions_in(events) == [session["id"]]
    await stream.aclose()


async def test_a_class_is_published_when_it_is_created_and_when_it_ends(desk: PublicDesk) -> None:
    batch = await create(desk, 2)
    created = desk.parts.hub.events["lablet.batch.updated"]
    await desk.operator.post(f"/api/lablet-batches/{batch['id']}/end")
    assert desk.parts.hub.events["lablet.batch.updated"] == created + 1


async def test_the_queue_is_published_once_a_second_however_much_it_changes(desk: PublicDesk) -> None:
    stream = desk.parts.hub.stream(None, EventFilter(event_types=("scheduling.",), include_system=False))
    await anext(stream)
    for _ in range(3):
        await create(desk, 20)
    async with timeout(1.1):
        first = json.loads((await anext(stream)).decode().partition("data: ")[2])
    assert first == {"waiting": 60, "reasons": {}}
    assert desk.parts.hub.events["scheduling.queue.updated"] == 1
    await desk.clock.sleep(5)
    assert desk.parts.hub.events["scheduling.queue.updated"] == 1


async def test_the_queue_counts_what_it_waits_for_and_shows_a_viewer_no_session(desk: PublicDesk) -> None:
    session = await desk.book()
    await desk.clock.sleep(2)
    stream = desk.parts.hub.stream(None, EventFilter(event_types=("scheduling.",), owner_id=desk.viewer.id))
    await anext(stream)
    waiting = Waiting(session_id=session["id"], code=WaitCode.NO_ROOM, text="no worker has room")
    await report_waiting(desk.records, [waiting], by=SERVICE, fence=await fence_of(desk))
    shown = (await anext(stream)).decode()
    assert json.loads(shown.partition("data: ")[2]) == {"waiting": 1, "reasons": {"no_room": 1}}
    await desk.operator.post(f"/api/lablet-sessions/{session['id']}/end")
    shown = (await anext(stream)).decode()
    assert json.loads(shown.partition("data: ")[2]) == {"waiting": 0, "reasons": {}}


async def test_the_archive_does_not_touch_what_ended_a_moment_ago(desk: PublicDesk) -> None:
    session = await desk.book()
    await fail(desk, session["id"])
    await desk.clock.sleep(timedelta(minutes=59).total_seconds())
    await Archive(desk.records).run_pass()
    assert (await desk.records.sessions.get(session["id"])).status is FAILED
