"""Sessions, for people: booked, listed, ended, extended and retried; bad input changes nothing."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.lablets.archive_sessions import Archive, keep_lablet_records
from lcm.control_plane.commands.lablets.end_session import reject_session
from lcm.control_plane.commands.lablets.schedule_sessions import schedule_sessions
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.possibility import refuse_impossible
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.domain.capacity import Capacity
from lcm.domain.errors import ImpossibleNeeds
from lcm.domain.lablet.admission import find_claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.session import LabletSession
from lcm.domain.scaling import ScalingPolicy
from lcm.rest.lablets import PlacementOrder
from lcm.rest.scheduling import FitOfSlot, Forecast
from lcm.rest.schemas import LeadershipClaim
from support.people import PublicDesk, iso
from unit.domain.lablet.test_topology import lab, node

PATH = "/api/lablet-sessions"
SERVICE = "resource-scheduler"


@pytest.fixture
async def desk() -> PublicDesk:
    desk = await PublicDesk().open()
    await desk.define()
    return desk


async def fence_of(desk: PublicDesk) -> Fence:
    claim = LeadershipClaim(service=SERVICE, cluster_id="c", revision=1, instance_id="s")
    return fence_for(SERVICE, (await claim_leadership(desk.records, claim)).epoch)


async def place(desk: PublicDesk, session_id: str) -> LabletSession:
    """Have the scheduler place the session on the worker."""
    attempt = (await desk.records.sessions.get(session_id)).attempt + 1
    orders = [PlacementOrder(session_id=session_id, worker_id="w1", attempt=attempt)]
    fence = await fence_of(desk)
    await schedule_sessions(desk.records, desk.policies, orders, by=SERVICE, fence=fence)
    return await desk.records.sessions.get(session_id)


async def fail(desk: PublicDesk, session_id: str) -> None:
    await reject_session(desk.records, session_id, reason="no", by=SERVICE, fence=await fence_of(desk))


async def book_for_viewer(desk: PublicDesk, **fields: Any) -> str:
    """A session that the viewer owns."""
    body = {"definition": "branch", "name": "class", "count": 1, "owners": [desk.viewer.id], **fields}
    made = await desk.operator.post(f"{PATH}/batch", body)
    assert made.status == 202, made.text
    return str(made.body["batch"]["sessions"][0]["id"])


async def test_a_session_without_a_timeslot_waits_for_a_worker_at_once(desk: PublicDesk) -> None:
    made = await desk.operator.post(PATH, {"definition": "branch"})
    session = made.body["session"]
    assert (made.status, session["status"], session["owner_id"]) == (
        201,
        "pending_scheduling",
        desk.operator.id,
    )
    assert session["definition_version"] == "1.0.0"
    assert made.body["forecast"]["verdict"] == "fits"
    got = await desk.operator.get(f"{PATH}/{session['id']}")
    assert got.headers["etag"] == made.headers["etag"] == '"1"'


async def test_a_booked_session_is_pending_until_its_window_opens(desk: PublicDesk) -> None:
    slot = desk.slot(in_minutes=120)
    session = await desk.book(timeslot={**slot, "zone": "Europe/Berlin"})
    assert session["status"] == "pending"
    assert session["timeslot"] == {**slot, "zone": "Europe/Berlin"}


async def test_a_local_time_is_booked_in_its_zone(desk: PublicDesk) -> None:
    start = desk.clock.now().replace(hour=9, minute=0, second=0, microsecond=0) + timedelta(days=7)
    local = {"start": f"{start:%Y-%m-%dT09:00:00}", "end": f"{start:%Y-%m-%dT10:00:00}", "zone": "Asia/Tokyo"}
    session = await desk.book(timeslot=local)
    assert session["timeslot"]["start"] == f"{start:%Y-%m-%d}T00:00:00Z"


async def test_a_session_copies_the_definition_that_its_id_or_name_means(desk: PublicDesk) -> None:
    old = (await desk.viewer.get("/api/lablet-definitions/by-name/branch")).body
    new = await desk.define(version="2.0.0")
    assert (await desk.book())["definition_id"] == new["id"]
    assert (await desk.book(version="1.0.0"))["definition_id"] == old["id"]
    by_id = await desk.operator.post(PATH, {"definition_id": old["id"]})
    assert by_id.body["session"]["definition_version"] == "1.0.0"


async def test_a_repeated_request_with_a_key_creates_one_session(desk: PublicDesk) -> None:
    body = {"definition": "branch", "reservation_id": "R-1"}
    first = await desk.operator.post(PATH, body, idempotency_key="k")
    again = await desk.operator.post(PATH, body, idempotency_key="k")
    assert again.status == 201
    assert again.body["session"] == first.body["session"]
    other = await desk.operator.post(PATH, {"definition": "branch"}, idempotency_key="k")
    assert (other.status, other.kind) == (422, "key-reused")
    assert len(await desk.records.sessions.list_all()) == 1


def bad_slots(desk: PublicDesk) -> dict[str, tuple[Any, str]]:
    return {
        "past": (desk.slot(in_minutes=-10), "starts in the past; choose a later start"),
        "backwards": (desk.slot(in_minutes=60, minutes=-5), "must end after it starts; choose a later end"),
        "too long": (desk.slot(in_minutes=60, minutes=61), "allows 60 minutes; choose an earlier end"),
        "too far": (desk.slot(in_minutes=60 * 24 * 91), "more than 90 days ahead; choose an earlier start"),
        "no zone": ({"start": "2030-01-01T09:00:00", "end": "2030-01-01T10:00:00"}, "name the zone"),
        "bad zone": (
            {"start": "2030-01-01T09:00:00", "end": "2030-01-01T10:00:00", "zone": "Mars"},
            "write it as in Europe/Berlin",
        ),
        "endless": (
            {"start": "0001-01-01T00:00:00+14:00", "end": "9999-12-31T23:00:00-14:00"},
            "choose times of this century",
        ),
    }


@pytest.mark.parametrize(
    "name", ["past", "backwards", "too long", "too far", "no zone", "bad zone", "endless"]
)
async def test_a_bad_timeslot_is_refused_with_what_to_do_and_nothing_is_recorded(
    desk: PublicDesk, name: str
) -> None:
    slot, says = bad_slots(desk)[name]
    before = await desk.documents()
    for path, more in ((PATH, {}), (f"{PATH}/batch", {"name": "c", "count": 3})):
        refused = await desk.operator.post(path, {"definition": "branch", "timeslot": slot, **more})
        assert (refused.status, refused.kind) == (422, "invalid-timeslot")
        assert says in refused.body["detail"]
    assert await desk.documents() == before


@pytest.mark.parametrize(
    ("fields", "status", "kind", "says"),
    [
        ({"definition": "unheard"}, 422, "unknown-reference", "list them with GET /api/lablet-definitions"),
        ({"definition": "branch", "version": "9.0.0"}, 422, "unknown-reference", "'branch' 9.0.0"),
        ({"definition_id": "unheard"}, 422, "unknown-reference", "list them with GET"),
        ({}, 422, "invalid", "either definition_id or definition"),
        ({"definition_id": "x", "version": "1.0.0"}, 422, "invalid", "version goes with definition"),
        (
            {"definition": "branch", "aws_region": "mars-1"},
            422,
            "unknown-reference",
            "choose one of: us-east-1",
        ),
        ({"definition": "branch", "priority": 101}, 422, "invalid", "priority"),
        ({"definition": "branch", "seats": 2}, 422, "invalid", "seats"),
    ],
)
async def test_a_bad_request_is_refused_with_what_to_do_and_nothing_is_recorded(
    desk: PublicDesk, fields: Any, status: int, kind: str, says: str
) -> None:
    before = await desk.documents()
    refused = await desk.operator.post(PATH, fields)
    assert (refused.status, refused.kind) == (status, kind)
    assert says in refused.body["detail"]
    assert await desk.documents() == before


async def test_a_deprecated_definition_gives_no_new_session(desk: PublicDesk) -> None:
    made = (await desk.viewer.get("/api/lablet-definitions/by-name/branch")).body
    await desk.admin.post(f"/api/lablet-definitions/{made['id']}/deprecate")
    before = await desk.documents()
    refused = await desk.operator.post(PATH, {"definition_id": made["id"]})
    assert (refused.status, refused.kind) == (409, "conflict")
    assert "use its newest version" in refused.body["detail"]
    assert await desk.documents() == before


async def test_needs_that_no_worker_can_meet_are_refused_now_and_in_a_booking(desk: PublicDesk) -> None:
    needs = {"cpu": 4000, "memory_gb": 8, "storage_gb": 10, "nodes": 1}
    await desk.define("huge", lab_yaml=lab(node()), options={"stated_needs": needs})
    before = await desk.documents()
    slot = desk.slot(in_minutes=600)
    for body in ({}, {"timeslot": slot}, {"reservation_id": "R-1"}):
        refused = await desk.operator.post(PATH, {"definition": "huge", **body})
        assert (refused.status, refused.kind) == (422, "impossible-needs")
        assert "large enough for 4000 CPUs" in refused.body["detail"]
    seats = {"definition": "huge", "name": "c", "count": 30, "all_or_nothing": True, "timeslot": slot}
    refused = await desk.operator.post(f"{PATH}/batch", seats)
    assert (refused.status, refused.kind) == (422, "impossible-needs")
    assert await desk.documents() == before


async def test_a_lab_that_only_a_worker_is_large_enough_for_is_possible(desk: PublicDesk) -> None:
    needs = {"cpu": 400, "memory_gb": 8, "storage_gb": 10, "nodes": 1}
    await desk.define("large", lab_yaml=lab(node()), options={"stated_needs": needs})
    assert (await desk.operator.post(PATH, {"definition": "large"})).status == 422
    await desk.records.workers.change(
        "w1", lambda worker: replace(worker, declared_capacity=Capacity(cpu=400, memory_gb=8, storage_gb=99))
    )
    assert (await desk.operator.post(PATH, {"definition": "large"})).status == 422, "it has no room for nodes"
    await desk.records.workers.change(
        "w1",
        lambda worker: replace(
            worker, declared_capacity=Capacity(cpu=400, memory_gb=8, storage_gb=99, nodes=9)
        ),
    )
    assert (await desk.operator.post(PATH, {"definition": "large"})).status == 201


async def test_no_worker_is_read_to_know_that_a_template_can_run_a_lab() -> None:
    listed: Counter[str] = Counter()

    class Store(MemoryStore):
        async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
            listed[kind] += 1
            return await super().list_holding(kind, prefix)

    desk = await PublicDesk(store=Store()).open()
    listed.clear()
    await refuse_impossible(desk.records, desk.policies, Demand(needs=Capacity(cpu=2, memory_gb=2)))
    assert listed["worker"] == 0
    with pytest.raises(ImpossibleNeeds):
        await refuse_impossible(desk.records, desk.policies, Demand(needs=Capacity(cpu=4000)))
    assert listed["worker"] == 1


async def test_a_timeslot_without_room_is_refused_if_overbooking_is(desk: PublicDesk) -> None:
    strict = Policies(
        regions=("us-east-1",),
        default_region="us-east-1",
        refuses_overbooking=True,
        scaling=ScalingPolicy(max_workers_per_region=1),
    )
    desk = await PublicDesk(strict).open()
    await desk.define()
    seats = {"definition": "branch", "name": "c", "count": 200, "timeslot": desk.slot(in_minutes=600)}
    before = await desk.documents()
    refused = await desk.operator.post(f"{PATH}/batch", seats)
    assert (refused.status, refused.kind) == (409, "no-capacity-in-slot")
    assert refused.body["detail"].startswith("no_capacity_in_slot: ")
    assert await desk.documents() == before


async def test_a_reservation_has_one_session(desk: PublicDesk) -> None:
    first = await desk.book(reservation_id="R-17")
    before = await desk.documents()
    refused = await desk.operator.post(PATH, {"definition": "branch", "reservation_id": "R-17"})
    assert (refused.status, refused.kind) == (409, "conflict")
    assert first["id"] in refused.body["detail"]
    assert "use another reservation id" in refused.body["detail"]
    assert await desk.documents() == before


class Killed(Exception):
    """The process ends here."""


class KilledStore(MemoryStore):
    """Ends the process before the nth insertion or change of a kind."""

    kind, left = "", 0

    def kill_at(self, kind: str, number: int) -> None:
        self.kind, self.left = kind, number

    def _count(self, document: Document) -> None:
        if document.kind == self.kind:
            self.left -= 1
            if self.left == 0:
                raise Killed

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        self._count(document)
        await super().insert(document, fence)

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        self._count(document)
        await super().replace(document, fence)

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        self._count(Document(f"delete {kind}", document_id, 1, b""))
        await super().delete(kind, document_id, expected_version)


async def killed_desk() -> tuple[PublicDesk, KilledStore]:
    store = KilledStore()
    desk = await PublicDesk(store=store).open()
    await desk.define()
    return desk, store


async def test_a_reservation_whose_request_died_is_free_for_the_next_one() -> None:
    desk, store = await killed_desk()
    body = {"definition": "branch", "reservation_id": "R-17"}
    store.kill_at("lablet-session", 1)
    assert (await desk.operator.post(PATH, body, idempotency_key="a")).status == 500
    desk.restart()
    second = await desk.operator.post(PATH, body, idempotency_key="b")
    assert second.status == 201
    again = await desk.operator.post(PATH, body, idempotency_key="b")
    assert again.body["session"]["id"] == second.body["session"]["id"]
    late = await desk.operator.post(PATH, body, idempotency_key="a")
    assert (late.status, late.kind) in ((409, "conflict"), (422, "key-reused"))
    assert len(await desk.records.sessions.list_all()) == 1


# Who sees what.


async def test_a_viewer_sees_own_sessions_only_and_an_operator_all(desk: PublicDesk) -> None:
    own, other = await book_for_viewer(desk), (await desk.book())["id"]
    assert [each["id"] for each in (await desk.viewer.get(PATH)).body["items"]] == [own]
    assert {each["id"] for each in (await desk.operator.get(PATH)).body["items"]} == {own, other}
    assert (await desk.viewer.get(f"{PATH}?owner={desk.operator.id}")).body["items"] == []
    assert (await desk.viewer.get(f"{PATH}/{own}")).status == 200
    assert (await desk.viewer.get(f"{PATH}/{own}/history")).status == 200
    later = {"end": iso(desk.clock.now() + timedelta(minutes=90))}
    for method, path, body in (
        ("GET", "", None),
        ("GET", "/history", None),
        ("POST", "/end", None),
        ("POST", "/extend", later),
        ("POST", "/retry", None),
    ):
        hidden = await desk.viewer.send(method, f"{PATH}/{other}{path}", body)
        assert (hidden.status, hidden.kind) == (404, "not-found"), path
        assert "list yours with GET /api/lablet-sessions" in hidden.body["detail"]


async def test_lists_are_filtered_and_paged_newest_first(desk: PublicDesk) -> None:
    await desk.define("other")
    made = []
    for number in range(5):
        made.append((await desk.book(definition="other" if number == 2 else "branch"))["id"])
        await desk.clock.sleep(1)
    seen, path = [], f"{PATH}?limit=2"
    while path:
        page = (await desk.operator.get(path)).body
        seen += [each["id"] for each in page["items"]]
        path = f"{PATH}?limit=2&after={page['next'].replace(' ', '%20')}" if page["next"] else ""
    assert seen == made[::-1]
    only = (await desk.operator.get(f"{PATH}?definition=other")).body["items"]
    assert [each["id"] for each in only] == [made[2]]
    await place(desk, made[0])
    placed = (await desk.operator.get(f"{PATH}?worker_id=w1&status=scheduled")).body["items"]
    assert [each["id"] for each in placed] == [made[0]]


async def test_a_list_between_two_moments_has_what_lasts_into_them(desk: PublicDesk) -> None:
    early = (await desk.book(timeslot=desk.slot(in_minutes=60)))["id"]
    late = (await desk.book(timeslot=desk.slot(in_minutes=180)))["id"]

    async def between(first: float, last: float) -> set[str]:
        slot = desk.slot(in_minutes=first, minutes=last - first)
        found = await desk.operator.get(f"{PATH}?from={slot['start']}&to={slot['end']}")
        return {str(each["id"]) for each in found.body["items"]}

    assert await between(0, 60) == set()
    assert await between(119, 130) == {early}
    assert await between(120, 181) == {late}
    assert await between(0, 500) == {late, early}
    refused = await desk.operator.get(f"{PATH}?from=2030-01-01T00:00:00")
    assert (refused.status, refused.kind) == (422, "invalid")


# Ending.


async def test_a_session_that_waits_ends_at_once_and_a_second_end_changes_nothing(
    desk: PublicDesk,
) -> None:
    own = await book_for_viewer(desk)
    first = await desk.viewer.post(f"{PATH}/{own}/end")
    assert (first.status, first.body["status"]) == (202, "terminated")
    again = await desk.viewer.post(f"{PATH}/{own}/end", idempotency_key="k")
    assert (again.status, again.body) == (202, first.body)
    await desk.clock.sleep(2 * 3600)
    await Archive(desk.records).run_pass()
    archived = await desk.viewer.post(f"{PATH}/{own}/end")
    assert (archived.status, archived.body["status"]) == (202, "terminated")


async def test_a_placed_session_without_a_lab_ends_and_its_claim_is_released(desk: PublicDesk) -> None:
    session = await desk.book()
    await place(desk, session["id"])
    tag = (await desk.operator.get(f"{PATH}/{session['id']}")).headers["etag"]
    assert (await desk.operator.post(f"{PATH}/{session['id']}/end", if_match='"1"')).status == 412
    ended = await desk.operator.post(f"{PATH}/{session['id']}/end", if_match=tag)
    assert (ended.status, ended.body["status"]) == (202, "terminated")
    assert (await desk.records.workers.get("w1")).claims == ()
    history = (await desk.operator.get(f"{PATH}/{session['id']}/history")).body["items"]
    assert [each["to"] for each in history] == ["pending_scheduling", "scheduled", "stopping", "terminated"]


async def test_ended_sessions_are_listed_on_request_from_the_archive_too(desk: PublicDesk) -> None:
    first, second = (await desk.book())["id"], (await desk.book())["id"]
    await desk.operator.post(f"{PATH}/{first}/end")
    await desk.clock.sleep(2 * 3600)
    await desk.operator.post(f"{PATH}/{second}/end")
    await Archive(desk.records).run_pass()
    assert await desk.records.sessions.find(first) is None
    assert (await desk.operator.get(f"{PATH}/{first}")).body["status"] == "terminated"
    assert (await desk.operator.get(PATH)).body["items"] == []
    for query in ("include_ended=true", "status=terminated"):
        listed = (await desk.operator.get(f"{PATH}?{query}")).body["items"]
        assert {each["id"] for each in listed} == {first, second}


async def test_a_crash_between_the_two_writes_of_an_archival_is_finished_by_the_next_pass() -> None:
    desk, store = await killed_desk()
    session = (await desk.book())["id"]
    await desk.operator.post(f"{PATH}/{session}/end")
    await desk.clock.sleep(2 * 3600)
    store.kill_at("delete lablet-session", 1)
    with pytest.raises(Killed):
        await Archive(desk.records).run_pass()
    assert len((await desk.operator.get(f"{PATH}?include_ended=true")).body["items"]) == 1
    await Archive(desk.records).run_pass()
    assert await desk.records.sessions.find(session) is None
    assert (await desk.operator.get(f"{PATH}/{session}")).status == 200


async def test_the_archive_is_bounded_and_frees_reservations(desk: PublicDesk) -> None:
    archive = Archive(desk.records, max_archived=10)
    for number in range(12):
        session = await desk.book(reservation_id=f"R-{number}")
        await desk.operator.post(f"{PATH}/{session['id']}/end")
        await desk.clock.sleep(60)
    await desk.clock.sleep(2 * 3600)
    await archive.run_pass()
    kept = await desk.records.archived_sessions.list_all()
    assert sorted(int(str(each.reservation_id)[2:]) for each in kept) == list(range(3, 12))
    await desk.book(reservation_id="R-0")
    await desk.clock.sleep(31 * 24 * 3600)
    await archive.run_pass()
    assert await desk.records.archived_sessions.list_all() == []


# Extending.


async def test_a_booked_session_is_extended_with_its_claim(
    desk: PublicDesk,
) -> None:
    own = await book_for_viewer(desk, timeslot=desk.slot(in_minutes=30, minutes=30))
    await place(desk, own)
    end = desk.clock.now() + timedelta(minutes=75)
    extended = await desk.viewer.post(f"{PATH}/{own}/extend", {"end": iso(end)}, idempotency_key="k")
    assert (extended.status, extended.body["timeslot"]["end"]) == (202, iso(end))
    claim = find_claim(await desk.records.workers.get("w1"), own)
    assert claim is not None
    assert claim.ends_at == end
    again = await desk.viewer.post(f"{PATH}/{own}/extend", {"end": iso(end)}, idempotency_key="k")
    assert (again.status, again.body) == (202, extended.body)


async def test_only_an_operator_exceeds_the_duration_that_the_definition_allows(desk: PublicDesk) -> None:
    own = await book_for_viewer(desk, timeslot=desk.slot(in_minutes=30, minutes=60))
    before = await desk.documents()
    end = {"end": iso(desk.clock.now() + timedelta(minutes=120))}
    refused = await desk.viewer.post(f"{PATH}/{own}/extend", end)
    assert (refused.status, refused.kind) == (422, "invalid-timeslot")
    assert "allows 60 minutes; choose an earlier end" in refused.body["detail"]
    assert await desk.documents() == before
    assert (await desk.operator.post(f"{PATH}/{own}/extend", end)).status == 202


@pytest.mark.parametrize(
    ("minutes", "says"), [(50, "already; choose a later end"), (60 * 24 * 120, "more than 90 days ahead")]
)
async def test_an_end_that_is_not_later_or_is_too_far_is_refused(
    desk: PublicDesk, minutes: int, says: str
) -> None:
    session = await desk.book(timeslot=desk.slot(in_minutes=30, minutes=30))
    before = await desk.documents()
    end = {"end": iso(desk.clock.now() + timedelta(minutes=minutes))}
    refused = await desk.operator.post(f"{PATH}/{session['id']}/extend", end)
    assert (refused.status, refused.kind) == (422, "invalid-timeslot")
    assert says in refused.body["detail"]
    assert await desk.documents() == before


async def test_a_session_that_ends_or_has_no_timeslot_is_not_extended(desk: PublicDesk) -> None:
    end = {"end": iso(desk.clock.now() + timedelta(minutes=50))}
    unbooked = await desk.book()
    refused = await desk.operator.post(f"{PATH}/{unbooked['id']}/extend", end)
    assert (refused.status, refused.kind) == (409, "conflict")
    booked = await desk.book(timeslot=desk.slot(in_minutes=5, minutes=30))
    await desk.operator.post(f"{PATH}/{booked['id']}/end")
    assert (await desk.operator.post(f"{PATH}/{booked['id']}/extend", end)).status == 409
    no_zone = {"end": "2030-01-01T00:00:00"}
    assert (await desk.operator.post(f"{PATH}/{unbooked['id']}/extend", no_zone)).status == 422


async def test_an_extension_into_room_that_another_session_counts_on_names_the_time(desk: PublicDesk) -> None:
    session = await desk.book(timeslot=desk.slot(in_minutes=10, minutes=30))
    await place(desk, session["id"])
    then = desk.clock.now() + timedelta(minutes=50)
    await desk.records.workers.change("w1", lambda worker: replace(worker, nominations={"s-next": then}))
    before = await desk.documents()
    end = {"end": iso(desk.clock.now() + timedelta(minutes=55))}
    refused = await desk.operator.post(f"{PATH}/{session['id']}/extend", end)
    assert (refused.status, refused.kind) == (409, "next-booking")
    assert refused.body["detail"].startswith("next_booking: session s-next")
    assert then.isoformat() in refused.body["detail"]
    assert await desk.documents() == before


async def test_a_crash_between_the_two_writes_of_an_extension_leaves_the_end_of_the_session() -> None:
    desk, store = await killed_desk()
    session = await desk.book(timeslot=desk.slot(in_minutes=10, minutes=30))
    before = await place(desk, session["id"])
    store.kill_at("lablet-session", 1)
    end = {"end": iso(desk.clock.now() + timedelta(minutes=55))}
    assert (await desk.operator.post(f"{PATH}/{session['id']}/extend", end)).status == 500
    desk.restart()
    await keep_lablet_records(desk.records, desk.policies)
    claim = find_claim(await desk.records.workers.get("w1"), session["id"])
    assert claim is not None
    assert claim.ends_at == before.ends_at


# Retrying.


async def test_a_failed_session_is_retried_once_with_what_it_had(desk: PublicDesk) -> None:
    session = await desk.book(reservation_id="R-1", timeslot=desk.slot(in_minutes=20))
    early = await desk.operator.post(f"{PATH}/{session['id']}/retry")
    assert (early.status, early.kind) == (409, "conflict")
    assert "only a failed one is retried" in early.body["detail"]
    await fail(desk, session["id"])
    made = (await desk.viewer.get("/api/lablet-definitions/by-name/branch")).body
    await desk.admin.post(f"/api/lablet-definitions/{made['id']}/deprecate")
    retried = await desk.operator.post(f"{PATH}/{session['id']}/retry")
    assert retried.status == 202
    assert retried.body["retry_of"] == session["id"]
    assert retried.body["id"] != session["id"]
    for name in ("demand", "owner_id", "timeslot", "reservation_id", "definition_id"):
        assert retried.body[name] == session[name]
    again = await desk.operator.post(f"{PATH}/{session['id']}/retry")
    assert again.body == retried.body


async def test_a_retry_after_the_timeslot_began_starts_as_soon_as_possible(desk: PublicDesk) -> None:
    session = await desk.book(timeslot=desk.slot(in_minutes=20))
    await desk.clock.sleep(21 * 60)
    await fail(desk, session["id"])
    retried = await desk.operator.post(f"{PATH}/{session['id']}/retry")
    assert (retried.body["timeslot"], retried.body["status"]) == (None, "pending_scheduling")


async def test_equal_forecasts_are_made_once_a_second(desk: PublicDesk) -> None:
    cache, made = desk.parts.plane.caches.forecasts, []

    async def compute() -> Forecast:
        made.append(desk.clock.monotonic())
        await desk.clock.sleep(0.1)
        return Forecast(verdict=FitOfSlot.FITS, text="", workers_needed=0, workers_possible=1)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(cache.get("question", compute))
    assert len(made) == 1
    await cache.get("another", compute)
    await desk.clock.sleep(1)
    await cache.get("question", compute)
    assert len(made) == 3
