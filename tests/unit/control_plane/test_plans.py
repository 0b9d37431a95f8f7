"""The plan of a fleet from documents, and what carrying it out does: once, in part, twice, after a drift."""

from typing import Any

import pytest
from msgspec.structs import replace

from lcm.domain.lifecycle import FAILED, TERMINATED, WorkerStatus
from support.people import Answer, PublicDesk
from support.topologies import ROUTER_AND_HOST, TWO_ALPINES

Json = dict[str, Any]


@pytest.fixture
async def desk() -> PublicDesk:
    return await PublicDesk().open()


def worker(name: str, **fields: Any) -> Json:
    return {"kind": "worker", "name": name, "template_name": "small", **fields}


def definition(name: str = "lab", **fields: Any) -> Json:
    return {"kind": "definition", "name": name, "lab_yaml": TWO_ALPINES, **fields}


def school_class(desk: PublicDesk, name: str = "monday", **fields: Any) -> Json:
    slot = desk.slot(in_minutes=600)
    return {"kind": "class", "name": name, "definition": "lab", "count": 3, "timeslot": slot, **fields}


async def plan(desk: PublicDesk, *documents: Json, **how: Any) -> Json:
    found = await desk.admin.post("/api/plan", {"resources": list(documents), **how})
    assert found.status == 200, found.text
    return dict(found.body)


def outline(found: Json) -> list[str]:
    return [f"{step['action']} {step['kind']}/{step['name']}" for step in found["steps"]]


async def send(desk: PublicDesk, request: Json) -> Answer:
    key = {"idempotency_key": request["idempotency_key"]}
    if request["if_match"] is not None:
        key["if_match"] = request["if_match"]
    return await desk.admin.send(request["method"], request["path"], request["body"], **key)


async def carry_out(desk: PublicDesk, found: Json, *, only: int | None = None) -> None:
    requests = [request for step in found["steps"] for request in step["requests"]]
    for request in requests[:only]:
        answer = await send(desk, request)
        assert answer.status < 300, answer.text


async def apply(desk: PublicDesk, *documents: Json, **how: Any) -> Json:
    found = await plan(desk, *documents, **how)
    await carry_out(desk, found)
    return found


async def worker_named(desk: PublicDesk, name: str) -> Json:
    return dict((await desk.admin.get(f"/api/workers/{name}")).body)


async def become(desk: PublicDesk, worker_id: str, status: WorkerStatus) -> None:
    await desk.records.workers.change(worker_id, lambda worker: replace(worker, status=status))


async def counted(desk: PublicDesk) -> tuple[int, int, int]:
    """The workers, definitions and classes that there are."""
    records = desk.records
    found = (records.workers, records.definitions, records.batches)
    first, second, third = [len(await each.list_all()) for each in found]
    return first, second, third


async def test_a_fleet_is_created_as_its_documents_say_and_then_nothing_is_left(desk: PublicDesk) -> None:
    documents = (
        school_class(desk),
        worker("a", tags={"team": "ccna"}, licensed=True),
        worker("b", desired_status="stopped"),
        definition(options={"priority": 5}),
    )
    found = await plan(desk, *documents)
    assert outline(found) == [
        "create definition/lab",
        "create worker/a",
        "create worker/b",
        "create class/monday",
    ]
    assert [step["document"] for step in found["steps"]] == [3, 1, 2, 0]
    assert await counted(desk) == (1, 0, 0), "a plan changes nothing"
    await carry_out(desk, found)
    made = await worker_named(desk, "a")
    assert (made["tags"], made["license"]["declared"], made["file_set"]) == (
        {"team": "ccna"},
        True,
        "default",
    )
    assert (await worker_named(desk, "b"))["desired_status"] == "stopped"
    assert await counted(desk) == (3, 1, 1)
    again = await plan(desk, *documents)
    assert {step["action"] for step in again["steps"]} == {"keep"}
    assert [request for step in again["steps"] for request in step["requests"]] == []


async def test_a_plan_that_was_cut_at_any_request_is_completed_by_the_next_one() -> None:
    cut = 0
    while True:
        desk = await PublicDesk().open()
        documents = (
            definition(),
            worker("a", tags={"x": "1"}),
            worker("b", desired_status="stopped"),
            school_class(desk),
        )
        first = await plan(desk, *documents)
        await carry_out(desk, first, only=cut)
        desk.restart()
        await apply(desk, *documents)
        assert {step["action"] for step in (await plan(desk, *documents))["steps"]} == {"keep"}
        assert await counted(desk) == (3, 1, 1), cut
        if cut == sum(len(step["requests"]) for step in first["steps"]):
            assert cut == 5
            return
        cut += 1


async def test_a_plan_that_is_carried_out_twice_creates_nothing_twice(desk: PublicDesk) -> None:
    found = await apply(desk, definition(), worker("a"), school_class(desk))
    await carry_out(desk, found)
    assert await counted(desk) == (2, 1, 1)
    assert len(await desk.records.sessions.list_all()) == 3


async def test_two_applies_of_the_same_documents_at_once_create_one_fleet(desk: PublicDesk) -> None:
    documents = (definition(), worker("a"), school_class(desk))
    first, second = await plan(desk, *documents), await plan(desk, *documents)
    await carry_out(desk, first)
    await carry_out(desk, second)
    assert await counted(desk) == (2, 1, 1)


async def test_a_drift_is_shown_field_by_field_and_undone_each_time(desk: PublicDesk) -> None:
    document = worker("a", tags={"team": "ccna", "room": "1"}, desired_status="running")
    await apply(desk, document)
    for _ in range(2):
        worker_id = (await worker_named(desk, "a"))["id"]
        await desk.admin.put(f"/api/workers/{worker_id}/tags", {"tags": {"team": "ccnp", "room": "1"}})
        await desk.admin.post(f"/api/workers/{worker_id}/stop")
        found = await apply(desk, document)
        assert found["steps"][0]["changes"] == [
            {"field": "tags.team", "before": "ccnp", "after": "ccna"},
            {"field": "desired_status", "before": "stopped", "after": "running"},
        ]
        now = await worker_named(desk, "a")
        assert (now["tags"], now["desired_status"]) == (document["tags"], "running")


async def test_what_a_document_leaves_out_is_left_to_others(desk: PublicDesk) -> None:
    await apply(desk, worker("a", tags={"team": "ccna"}))
    await desk.admin.post("/api/workers/a/stop")
    found = await plan(desk, worker("a"))
    assert outline(found) == ["keep worker/a"]


async def test_a_deleted_worker_is_created_anew_by_the_same_document(desk: PublicDesk) -> None:
    await apply(desk, worker("a"))
    first = await worker_named(desk, "a")
    await desk.admin.delete(f"/api/workers/{first['id']}")
    going = await plan(desk, worker("a"))
    assert outline(going) == ["refuse worker/a"]
    assert "being deleted" in going["steps"][0]["errors"][0]["message"]
    await become(desk, first["id"], TERMINATED)
    await apply(desk, worker("a"))
    assert (await worker_named(desk, "a"))["id"] != first["id"]


async def test_a_changed_topology_makes_the_next_version_and_the_login_stays(desk: PublicDesk) -> None:
    await apply(desk, definition())
    await desk.admin.put("/api/lablet-definitions/lab/access", {"username": "u", "password": "p"})
    found = await apply(desk, definition(lab_yaml=ROUTER_AND_HOST))
    assert outline(found) == ["change definition/lab"]
    assert found["steps"][0]["reason"] == "version 1.0.0 is replaced by 1.1.0"
    newest = (await desk.admin.get("/api/lablet-definitions/lab")).body
    assert (newest["version"], newest["has_access_login"], newest["file_set"]) == ("1.1.0", True, "default")
    assert outline(await plan(desk, definition(lab_yaml=ROUTER_AND_HOST))) == ["keep definition/lab"]


async def test_a_deleted_definition_is_created_again_under_a_version_that_is_free(desk: PublicDesk) -> None:
    await apply(desk, definition())
    await apply(desk, definition(), goal="delete")
    await apply(desk, definition())
    assert (await desk.admin.get("/api/lablet-definitions/lab")).body["version"] == "1.1.0"


async def test_prune_deletes_only_what_its_set_created_and_only_when_asked(desk: PublicDesk) -> None:
    await desk.admin.post("/api/workers", {"name": "by-hand", "template_name": "small"})
    everything = (worker("a"), worker("b"), definition(), school_class(desk))
    await apply(desk, *everything)
    await apply(desk, worker("other"), file_set="other")
    assert outline(await plan(desk, worker("a"))) == ["keep worker/a"]
    pruned = await plan(desk, worker("a"), prune=True)
    assert outline(pruned) == [
        "keep worker/a",
        "delete class/monday",
        "delete definition/lab",
        "delete worker/b",
    ]
    assert {step["document"] for step in pruned["steps"][1:]} == {None}
    assert outline(await plan(desk, prune=True, file_set="other")) == ["delete worker/other"]


async def test_a_worker_made_by_hand_is_managed_by_a_document_but_never_pruned(desk: PublicDesk) -> None:
    await desk.admin.post("/api/workers", {"name": "by-hand", "template_name": "small"})
    assert outline(await apply(desk, worker("by-hand", tags={"x": "1"}))) == ["change worker/by-hand"]
    assert outline(await plan(desk, prune=True)) == []


async def test_a_deletion_takes_what_the_documents_name_and_what_needs_others_first(desk: PublicDesk) -> None:
    everything = (definition(), worker("a"), worker("b"), school_class(desk))
    await apply(desk, *everything)
    found = await plan(desk, *everything[:2], everything[3], worker("nobody"), goal="delete")
    assert outline(found) == [
        "delete class/monday",
        "delete worker/a",
        "keep worker/nobody",
        "delete definition/lab",
    ]
    await carry_out(desk, found, only=2)
    assert (await worker_named(desk, "a"))["desired_status"] == "terminated"
    assert (await worker_named(desk, "b"))["desired_status"] == "running"


async def test_the_plan_says_what_the_fleet_costs_before_and_after(desk: PublicDesk) -> None:
    prices = {each.name: each.usd_per_hour for each in await desk.records.templates.list_all()}
    found = await plan(desk, worker("a"), worker("b", desired_status="stopped"))
    assert found["usd_per_hour_now"] == pytest.approx(prices["metal"])
    assert found["usd_per_hour_after"] == pytest.approx(prices["metal"] + prices["small"])
    stopped = await plan(desk, worker("w1", template_name="metal", desired_status="stopped"))
    assert stopped["usd_per_hour_after"] == 0.0


@pytest.mark.parametrize(
    ("document", "errors"),
    [
        ({"name": "x"}, {"kind": "it is missing"}),
        ({"kind": "server", "name": "x"}, {"kind": "'server' is no kind; choose one of: "}),
        (worker("Upper"), {"name": "use 1 to 63 lower-case letters"}),
        (worker("x", tags={"aws:x": "1"}), {"tags.aws:x": "reserved by AWS"}),
        (worker("x", tags={"a": 1}), {"tags[...]": "expected `str`"}),
        (worker("x", size=1, licensed="yes"), {"size": "unknown; there are: ", "licensed": "expected `bool"}),
        (worker("x", template_name="huge"), {"template_name": "there is no template 'huge'"}),
        (worker("x", aws_region="mars"), {"aws_region": "region 'mars' is not configured"}),
        (worker("x", template_name="huge", aws_region="mars"), {"template_name": "", "aws_region": ""}),
        (worker("w1"), {"template_name": "it is 'metal' and a worker keeps it"}),
        ({"kind": "definition", "name": "x", "lab_yaml": "nodes: 3"}, {"lab_yaml": ""}),
        (definition(options={"priority": 500}), {"options.priority": "<= 100"}),
    ],
)
async def test_a_wrong_document_is_refused_with_all_its_fields(
    desk: PublicDesk, document: Json, errors: dict[str, str]
) -> None:
    (step,) = (await plan(desk, document))["steps"]
    assert (step["action"], step["requests"]) == ("refuse", [])
    found = {error["field"]: error["message"] for error in step["errors"]}
    assert found.keys() == errors.keys()
    for field, says in errors.items():
        assert says in found[field]


async def test_what_lcm_would_refuse_of_a_request_the_plan_refuses_in_the_same_words(
    desk: PublicDesk,
) -> None:
    await become(desk, "w1", FAILED)
    (step,) = (await plan(desk, worker("w1", template_name="metal", desired_status="stopped")))["steps"]
    refused = await desk.admin.post("/api/workers/w1/stop")
    assert step["errors"] == [{"field": "desired_status", "message": refused.body["detail"]}]


async def test_a_name_is_given_once_to_a_kind(desk: PublicDesk) -> None:
    found = await plan(desk, worker("a"), definition("a"), worker("a"))
    assert sorted(outline(found)) == ["create definition/a", "create worker/a", "refuse worker/a"]


async def test_a_booked_class_is_not_changed_and_one_that_is_over_is_left_alone(desk: PublicDesk) -> None:
    document = school_class(desk)
    await apply(desk, definition(), document)
    (_, step) = (await plan(desk, definition(), {**document, "count": 4}))["steps"]
    assert [error["field"] for error in step["errors"]] == ["count"]
    await desk.clock.sleep(12 * 3600)
    (_, step) = (await plan(desk, definition(), document))["steps"]
    assert (step["action"], step["reason"]) == ("keep", "its timeslot is over")


async def test_a_class_without_a_timeslot_keeps_its_name_until_its_sessions_have_ended(
    desk: PublicDesk,
) -> None:
    await apply(desk, definition())
    body = {"name": "monday", "definition": "lab", "count": 1}
    made = (await desk.operator.post("/api/lablet-sessions/batch", body)).body["batch"]
    (step,) = (await plan(desk, school_class(desk)))["steps"]
    assert step["errors"][0]["message"] == (
        "a class of this name is booked with no timeslot; end that one, or choose another name"
    )
    await desk.operator.post(f"/api/lablet-sessions/{made['sessions'][0]['id']}/end")
    assert outline(await plan(desk, school_class(desk))) == ["create class/monday"]


async def test_a_class_of_a_definition_in_the_same_documents_is_judged_by_what_that_will_be(
    desk: PublicDesk,
) -> None:
    found = await plan(desk, school_class(desk), definition(options={"max_duration_minutes": 30}))
    assert outline(found) == ["create definition/lab", "refuse class/monday"]
    assert "allows 30 minutes" in found["steps"][1]["errors"][0]["message"]
    missing = await plan(desk, school_class(desk, definition="nothing"))
    assert missing["steps"][0]["errors"][0]["field"] == "definition"


async def test_a_viewer_plans_nothing(desk: PublicDesk) -> None:
    assert (await desk.viewer.post("/api/plan", {"resources": []})).status == 403


async def test_fields_of_a_template_are_changed_before_the_workers_that_need_them(desk: PublicDesk) -> None:
    template = {"kind": "template", "name": "small", "enabled": True, "usd_per_hour": 0.5}
    await desk.admin.post("/api/worker-templates/small/disable")
    found = await apply(desk, worker("a"), template)
    assert outline(found) == ["change template/small", "create worker/a"]
    assert [change["field"] for change in found["steps"][0]["changes"]] == ["enabled", "usd_per_hour"]
    assert found["steps"][1]["usd_per_hour"] == 0.5
    now = (await desk.admin.get("/api/worker-templates/small")).body
    assert (now["enabled"], now["usd_per_hour"], now["cpu"]) == (True, 0.5, 2)
    assert outline(await plan(desk, template)) == ["keep template/small"]
    reverted = await apply(desk, template, goal="delete")
    assert outline(reverted) == ["delete template/small"]
    assert (await desk.admin.get("/api/worker-templates/small")).body["usd_per_hour"] != 0.5
    assert outline(await plan(desk, template, goal="delete")) == ["keep template/small"]


async def test_a_template_that_was_changed_since_the_plan_is_not_changed_by_it(desk: PublicDesk) -> None:
    template = {"kind": "template", "name": "small", "usd_per_hour": 0.5}
    (step,) = (await plan(desk, template))["steps"]
    await desk.admin.post("/api/worker-templates/small/disable")
    assert (await send(desk, step["requests"][0])).status == 412


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"size": 1}, "size"),
        ({"cpu": 0}, "cpu"),
        ({"name": "huge"}, "name"),
        ({"reserved_cpu": 2}, "reserved_cpu"),
    ],
)
async def test_a_wrong_field_of_a_template_is_named(desk: PublicDesk, fields: Json, field: str) -> None:
    (step,) = (await plan(desk, {"kind": "template", "name": "small", **fields}))["steps"]
    assert (step["action"], [error["field"] for error in step["errors"]]) == ("refuse", [field])
