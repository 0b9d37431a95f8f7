"""People see every lab with whose it is, and request starts, stops and removals that survive any crash."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.domain.errors import LabRefused, Unreachable
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.listed_lab import LabAction
from lcm.domain.lablet.states import RUNNING
from lcm.domain.lifecycle import STOPPED
from lcm.simulator.cml.lab import Lab
from support.lab_strangers import DiscoveryBench
from support.lablet_bench import Killed
from support.people import Answer, Person


@pytest.fixture
async def bench() -> DiscoveryBench:
    bench = DiscoveryBench()
    await bench.open()
    return bench


@pytest.fixture
async def foreign(bench: DiscoveryBench) -> Lab:
    lab = bench.make_lab("of a person")
    await bench.discover()
    return lab


def path(lab: Lab, action: str) -> str:
    return f"/api/workers/w1/labs/{lab.id}/{action}"


async def remove(person: Person, lab: Lab, title: str | None = None) -> Answer:
    return await person.post(path(lab, "remove"), {"title": title})


async def listed(bench: DiscoveryBench, query: str = "") -> Any:
    answer = await bench.viewer.get(f"/api/labs{query}")
    assert answer.status == 200, answer.text
    return answer.body


async def test_a_viewer_sees_every_lab_with_whose_it_is(bench: DiscoveryBench) -> None:
    session = await bench.drive(RUNNING)
    lab = bench.make_lab("of a person", pc1="serial:2001")
    bench.start_lab(lab)
    await bench.discover()
    page = await listed(bench)
    own, other = page["items"]
    assert (own["kind"], own["session_id"], own["definition_name"]) == ("session", session.id, "branch")
    assert (other["kind"], other["title"], other["owner"]) == ("foreign", "of a person", "admin")
    assert (other["tag_ports"], other["running_nodes"], other["node_count"]) == ([2001], 2, 2)
    assert other["possible_actions"] == ["start", "stop", "remove", "adopt"]
    assert own["possible_actions"] == ["start", "stop"]
    [worker] = page["workers"]
    assert (worker["worker_name"], worker["is_partial"]) == ("w1", False)
    assert worker["listed_at"] == other["last_seen_at"]


async def test_a_lab_that_a_session_has_recorded_is_the_sessions_before_any_listing(
    bench: DiscoveryBench,
) -> None:
    session = await bench.drive(RUNNING)
    [lab] = bench.cml.labs.all()
    await bench.report_created(lab)
    [own] = (await listed(bench, "?kind=session"))["items"]
    assert (own["lab_id"], own["session_id"], own["definition_name"]) == (lab.id, session.id, "branch")
    assert own["possible_actions"] == []
    await bench.discover()
    [own] = (await listed(bench, "?kind=session"))["items"]
    assert own["possible_actions"] == ["start", "stop"]


async def test_labs_are_filtered_by_worker_and_kind_and_come_in_pages(bench: DiscoveryBench) -> None:
    for number in range(5):
        bench.make_lab(f"lab {number}")
    await bench.make_leaked("00000000-0000-4000-8000-000000000001")
    await bench.discover()
    [leaked] = (await listed(bench, "?kind=leaked"))["items"]
    assert (leaked["leak"], leaked["kind"]) == ("session_unknown", "leaked")
    assert leaked["removed_from"] is not None
    first = await listed(bench, "?kind=foreign&limit=3")
    second = await listed(bench, f"?kind=foreign&limit=3&after={first['next']}".replace(" ", "%20"))
    titles = [lab["title"] for page in (first, second) for lab in page["items"]]
    assert titles == [f"lab {number}" for number in range(5)]
    assert second["next"] is None
    assert (await bench.viewer.get("/api/labs?worker_id=w9")).status == 404


async def test_a_start_and_a_stop_are_carried_out_and_then_forgotten(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    answer = await bench.operator.post(path(foreign, "start"))
    assert (answer.status, answer.body["request"]["action"]) == (202, "start")
    await bench.carry_out()
    assert foreign.state == "STARTED"
    await bench.operator.post(path(foreign, "stop"))
    await bench.carry_out()
    record = await bench.lab(foreign.id)
    assert record is not None
    assert record.request is None
    assert len(await bench.audited(LabletEvent.LAB_ACTION_REQUESTED)) == 2


async def test_the_same_request_again_changes_nothing(bench: DiscoveryBench, foreign: Lab) -> None:
    first = await bench.operator.post(path(foreign, "start"))
    await bench.clock.sleep(1)
    again = await bench.operator.post(path(foreign, "start"))
    assert again.body["request"] == first.body["request"]
    assert len(await bench.audited(LabletEvent.LAB_ACTION_REQUESTED)) == 1


async def test_roles_are_required(bench: DiscoveryBench, foreign: Lab) -> None:
    assert (await bench.viewer.post(path(foreign, "start"))).status == 403
    assert (await bench.viewer.post("/api/workers/w1/labs/discover")).status == 403
    assert (await remove(bench.operator, foreign, "of a person")).status == 403
    assert (await bench.viewer.post(path(foreign, "adopt"))).status == 403
    assert (await bench.operator.post(path(foreign, "adopt"))).status == 200
    assert (await bench.operator.post(path(foreign, "disown"))).status == 403


async def test_an_adopted_lab_says_who_keeps_it_and_is_audited_once(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    first = await bench.operator.post(path(foreign, "adopt"))
    again = await bench.admin.post(path(foreign, "adopt"))
    assert again.body["adoption"] == first.body["adoption"]
    assert first.body["adoption"]["by"] == "operator"
    await bench.discover_for(10)
    [lab] = (await listed(bench, "?kind=adopted"))["items"]
    assert (lab["lab_id"], lab["adoption"]) == (foreign.id, first.body["adoption"])
    assert lab["possible_actions"] == ["start", "stop", "remove", "disown"]
    [entry] = await bench.audited(LabletEvent.LAB_ADOPTED)
    assert entry == f"lab {foreign.id} 'of a person': people keep it; it was foreign"


async def test_a_lab_adopted_as_one_of_a_definition_keeps_its_room_started_or_not(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    version = (await bench.operator.get("/api/lablet-definitions")).body["items"][0]["version"]
    adopted = await bench.operator.post(path(foreign, "adopt"), {"definition": "branch"})
    assert (adopted.body["kind"], adopted.body["definition_name"]) == ("adopted", "branch")
    needs = adopted.body["adoption"]["definition"]["needs"]
    assert needs["memory_gb"] > 0
    load = (await bench.worker()).cml.labs.foreign_load
    assert (load.cpu, load.memory_gb, load.storage_gb) == (
        needs["cpu"],
        needs["memory_gb"],
        needs["storage_gb"],
    )
    await bench.discover_for(10)
    assert (await bench.worker()).cml.labs.foreign_load == load
    [entry] = await bench.audited(LabletEvent.LAB_ADOPTED)
    assert f"people keep it as a lab of branch {version}; it was foreign" in entry
    again = await bench.operator.post(path(foreign, "adopt"))
    assert again.body["adoption"] == adopted.body["adoption"], "an adoption that names none keeps it"
    await bench.admin.post(path(foreign, "disown"))
    assert (await bench.worker()).cml.labs.foreign_load.memory_gb == 0


async def test_a_definition_may_be_named_for_a_lab_that_is_adopted_already(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    await bench.operator.post(path(foreign, "adopt"))
    named = await bench.admin.post(path(foreign, "adopt"), {"definition": "branch"})
    assert (named.body["adoption"]["by"], named.body["definition_name"]) == ("admin", "branch")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"definition": "of nobody"}, 404, "list them with GET"),
        ({"definition": "branch", "version": "99.0.0"}, 404, "99.0.0"),
        ({"version": "1.0.0"}, 422, "send 'definition' too"),
        ({"title": "branch"}, 422, "title"),
    ],
)
async def test_an_adoption_as_a_lab_of_no_known_definition_is_refused(
    bench: DiscoveryBench, foreign: Lab, body: dict[str, str], status: int, says: str
) -> None:
    answer = await bench.operator.post(path(foreign, "adopt"), body)
    assert (answer.status, says in answer.body["detail"]) == (status, True), answer.body
    assert (await listed(bench, "?kind=adopted"))["items"] == []


async def test_an_adopted_lab_is_removed_only_by_its_title(bench: DiscoveryBench, foreign: Lab) -> None:
    await bench.operator.post(path(foreign, "adopt"))
    assert "people adopted" in (await remove(bench.admin, foreign, "another")).body["detail"]
    assert (await remove(bench.admin, foreign, "of a person")).status == 202
    await bench.carry_out()
    assert bench.titles() == []
    assert await bench.lab(foreign.id) is None


async def test_a_disowned_lab_of_people_is_foreign_again(bench: DiscoveryBench, foreign: Lab) -> None:
    assert (await bench.admin.post(path(foreign, "disown"))).status == 409
    await bench.operator.post(path(foreign, "adopt"))
    disowned = await bench.admin.post(path(foreign, "disown"))
    assert (disowned.body["kind"], disowned.body["adoption"]) == ("foreign", None)
    [entry] = await bench.audited(LabletEvent.LAB_DISOWNED)
    assert "now it is foreign" in entry


async def test_the_lab_of_a_session_and_one_that_is_being_removed_are_not_adopted(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    session = await bench.drive(RUNNING)
    await bench.discover(timedelta(minutes=5))
    assert session.lab is not None
    answer = await bench.operator.post(f"/api/workers/w1/labs/{session.lab.lab_id}/adopt")
    assert (answer.status, "extend the session" in answer.body["detail"]) == (409, True)
    await remove(bench.admin, foreign, "of a person")
    assert (await bench.operator.post(path(foreign, "adopt"))).status == 409


@pytest.mark.parametrize("title", [None, "", "another"])
async def test_a_foreign_lab_is_removed_only_by_its_title(
    bench: DiscoveryBench, foreign: Lab, title: str | None
) -> None:
    answer = await remove(bench.admin, foreign, title)
    assert (answer.status, answer.kind) == (409, "conflict")
    assert "of a person" in answer.body["detail"]


async def test_a_foreign_lab_whose_title_is_typed_is_removed(bench: DiscoveryBench, foreign: Lab) -> None:
    bench.start_lab(foreign)
    assert (await remove(bench.admin, foreign, "of a person")).status == 202
    await bench.carry_out()
    assert foreign.id not in {lab.id for lab in bench.cml.labs.all()}
    assert await bench.lab(foreign.id) is None
    [entry] = await bench.audited(LabletEvent.LAB_REMOVED)
    assert "of a person" in entry


async def test_a_lab_that_was_renamed_after_the_request_is_not_removed(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    await remove(bench.admin, foreign, "of a person")
    foreign.title = "precious"
    await bench.carry_out()
    record = await bench.lab(foreign.id)
    assert record is not None
    assert record.request is not None
    assert (record.request.is_over, "title" in record.request.error) == (True, True)
    assert foreign.id in {lab.id for lab in bench.cml.labs.all()}


async def test_the_lab_of_a_session_is_removed_by_ending_the_session(bench: DiscoveryBench) -> None:
    await bench.drive(RUNNING)
    await bench.discover()
    [lab] = bench.cml.labs.all()
    answer = await remove(bench.admin, lab, lab.title)
    assert answer.status == 409
    assert "end the session" in answer.body["detail"]


async def test_the_lab_of_a_session_that_is_being_stopped_is_left_to_lcm(bench: DiscoveryBench) -> None:
    await bench.drive(RUNNING)
    await bench.discover()
    [lab] = bench.cml.labs.all()
    assert (await bench.operator.post(path(lab, "stop"))).status == 202
    await bench.end()
    await bench.step()
    assert (await bench.operator.post(path(lab, "start"))).status == 409
    await bench.carry_out()
    record = await bench.lab(lab.id)
    assert record is not None
    assert record.request is not None
    assert record.request.is_over


async def test_what_cml_refuses_is_shown_and_may_be_requested_again(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    bench.labs.failing["start_lab"] = LabRefused(400, "no license")
    await bench.operator.post(path(foreign, "start"))
    await bench.carry_out()
    [lab] = (await listed(bench))["items"]
    assert "no license" in lab["request"]["error"]
    del bench.labs.failing["start_lab"]
    await bench.operator.post(path(foreign, "start"))
    await bench.carry_out()
    assert foreign.state == "STARTED"


async def test_a_start_that_cannot_be_sent_ends_after_three_minutes(
    bench: DiscoveryBench, foreign: Lab
) -> None:
    bench.labs.failing["start_lab"] = Unreachable("connection refused")
    await bench.operator.post(path(foreign, "start"))
    await bench.carry_out(passes=20)
    assert await bench.work() != []
    await bench.carry_out(passes=20)
    assert await bench.work() == []


async def test_a_lab_of_a_worker_that_does_not_run_is_left(bench: DiscoveryBench, foreign: Lab) -> None:
    await bench.change_worker(lambda worker: replace(worker, status=STOPPED))
    for action in ("start", "stop", "discover"):
        target = "/api/workers/w1/labs/discover" if action == "discover" else path(foreign, action)
        assert (await bench.operator.post(target)).status == 409


async def test_a_lab_that_is_unknown_is_not_found(bench: DiscoveryBench) -> None:
    assert (await bench.operator.post("/api/workers/w1/labs/nothing/start")).status == 404
    assert (await bench.operator.post("/api/workers/w9/labs/nothing/start")).status == 404


@pytest.mark.parametrize("number", range(1, 16))
@pytest.mark.parametrize("is_after", [False, True])
async def test_a_request_is_carried_out_whatever_dies(
    bench: DiscoveryBench, foreign: Lab, number: int, *, is_after: bool
) -> None:
    bench.start_lab(foreign)
    await remove(bench.admin, foreign, "of a person")
    begun = len(bench.calls)

    def die_once(at: int, _: str, is_done: bool) -> None:
        if at == begun + number and is_done is is_after:
            bench.disturb = lambda number, name, is_done: None
            raise Killed

    bench.disturb = die_once
    await bench.carry_out(passes=30)
    assert foreign.id not in {lab.id for lab in bench.cml.labs.all()}
    assert await bench.lab(foreign.id) is None


async def test_a_request_that_was_replaced_is_not_carried_out(bench: DiscoveryBench, foreign: Lab) -> None:
    bench.start_lab(foreign)
    await bench.operator.post(path(foreign, "start"))
    [before] = await bench.work()
    await bench.clock.sleep(1)
    await bench.operator.post(path(foreign, "stop"))
    calls = len(bench.labs.calls)
    worker = await bench.worker()
    server = bench.requests.server_of(worker)
    assert server is not None
    with pytest.raises(Exception, match="has changed"):
        await bench.requests.gate.start_unowned(before, server)
    assert "start_lab" not in {name for name, _ in bench.labs.calls[calls:]}
    [work] = await bench.work()
    assert work.request is not None
    assert work.request.action is LabAction.STOP


async def test_the_event_stream_says_what_was_discovered_leaked_and_removed(bench: DiscoveryBench) -> None:
    seen = bench.parts.hub.events
    lab = bench.make_lab("of a person")
    await bench.make_leaked("00000000-0000-4000-8000-000000000001")
    await bench.discover()
    assert (seen["lab.discovered"], seen["lab.leaked"]) == (1, 1)
    await bench.delete_outside(lab)
    await bench.discover_for(10)
    assert seen["lab.removed"] == 1
    await bench.discover(timedelta(minutes=5))
    assert (seen["lab.discovered"], seen["lab.leaked"], seen["lab.removed"]) == (1, 1, 1)
