"""Definitions: a stored version never changes, its needs are computed, and an edit makes the next one."""

from typing import Any

import pytest

from lcm.control_plane.commands.lablets.change_definition import replace_definition
from lcm.control_plane.records.preconditions import UNCONDITIONAL
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from support.people import PublicDesk
from unit.domain.lablet.test_topology import BRANCH_OFFICE, lab, node

PATH = "/api/lablet-definitions"
OTHER = BRANCH_OFFICE.replace("Branch office", "Branch office 2")


@pytest.fixture
async def desk() -> PublicDesk:
    return await PublicDesk().open()


async def statuses(desk: PublicDesk) -> dict[str, str]:
    page = await desk.viewer.get(f"{PATH}?status=active&status=deprecated&status=archived")
    return {each["version"]: each["status"] for each in page.body["items"]}


async def events(desk: PublicDesk) -> list[str]:
    return [str(each.event) for each in reversed(await desk.records.lablet_audit.newest())]


async def test_a_definition_has_the_needs_of_its_topology(desk: PublicDesk) -> None:
    made = await desk.define()
    assert made["computed_needs"] == {"cpu": 3, "memory_gb": 5.5, "storage_gb": 21, "nodes": 2}
    assert (made["version"], made["status"], made["node_count"]) == ("1.0.0", "active", 4)
    assert "lab_yaml" not in made
    assert await events(desk) == ["definition_created"]


async def test_the_topology_is_returned_as_it_was_sent_and_lists_do_not_read_it(desk: PublicDesk) -> None:
    made = await desk.define()
    text = await desk.viewer.get(f"{PATH}/{made['id']}/topology")
    assert text.text.decode() == BRANCH_OFFICE
    assert text.headers["content-type"].startswith("text/yaml")
    assert all(len(each.body) < 3000 for each in await desk.store.list_all("lablet-definition"))


async def test_a_repeated_creation_with_a_key_creates_one_definition(desk: PublicDesk) -> None:
    body = {"name": "branch", "lab_yaml": BRANCH_OFFICE}
    first = await desk.admin.post(PATH, body, idempotency_key="k")
    again = await desk.admin.post(PATH, body, idempotency_key="k")
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    other = await desk.admin.post(PATH, {**body, "name": "other"}, idempotency_key="k")
    assert (other.status, other.kind) == (422, "key-reused")


async def test_a_name_has_each_version_once(desk: PublicDesk) -> None:
    await desk.define()
    before = await desk.documents()
    taken = await desk.admin.post(PATH, {"name": "branch", "lab_yaml": BRANCH_OFFICE})
    assert (taken.status, taken.kind) == (409, "name-taken")
    assert "PUT" in taken.body["detail"]
    assert await desk.documents() == before


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ({"name": "a/b", "lab_yaml": BRANCH_OFFICE}, "invalid", "name"),
        ({"name": "a\n", "lab_yaml": BRANCH_OFFICE}, "invalid-definition", "without a slash"),
        ({"name": "a", "lab_yaml": BRANCH_OFFICE, "version": "1.0.0\n"}, "invalid-definition", "as in 1.0.0"),
        ({"name": "a", "lab_yaml": BRANCH_OFFICE, "version": "2"}, "invalid", "version"),
        ({"name": "a", "lab_yaml": "lab: [\n"}, "invalid-topology", "line 2: not YAML"),
        ({"name": "a", "lab_yaml": "- 1\n"}, "invalid-topology", "download the lab from CML"),
        (
            {"name": "a", "lab_yaml": lab(node("tags: ['pat:x:22']"))},
            "invalid-topology",
            "line 3: node r1: the tag 'pat:x:22' is not valid; write pat:<outside>:<inside>",
        ),
        (
            {"name": "a", "lab_yaml": lab(node(kind="unheard-of"))},
            "invalid-definition",
            "(nodes r1) are unknown; state the needs",
        ),
        (
            {"name": "a", "lab_yaml": BRANCH_OFFICE, "options": {"max_duration_minutes": 481}},
            "invalid",
            "max_duration_minutes",
        ),
        (
            {"name": "a", "lab_yaml": BRANCH_OFFICE, "options": {"cml_version_min": "newest"}},
            "invalid-definition",
            "write it as in 2.9.0",
        ),
    ],
)
async def test_a_bad_definition_is_refused_with_what_to_do_and_nothing_is_stored(
    desk: PublicDesk, body: Any, kind: str, says: str
) -> None:
    before = await desk.documents()
    refused = await desk.admin.post(PATH, body)
    assert (refused.status, refused.kind) == (422, kind)
    assert says in refused.body["detail"]
    assert await desk.documents() == before


async def test_another_topology_makes_the_next_version_and_deprecates_this_one(desk: PublicDesk) -> None:
    made = await desk.define()
    put = await desk.admin.put(f"{PATH}/{made['id']}", {"lab_yaml": OTHER})
    assert (put.status, put.body["version"]) == (200, "1.1.0")
    assert await statuses(desk) == {"1.0.0": "deprecated", "1.1.0": "active"}
    assert await events(desk) == ["definition_created", "definition_created", "definition_deprecated"]


async def test_the_same_content_again_makes_no_version(desk: PublicDesk) -> None:
    made = await desk.define()
    path = f"{PATH}/{made['id']}"
    same = await desk.admin.put(path, {"lab_yaml": BRANCH_OFFICE})
    assert same.body["id"] == made["id"]
    first = await desk.admin.put(path, {"lab_yaml": OTHER})
    again = await desk.admin.put(path, {"lab_yaml": OTHER})
    assert again.body == first.body
    assert list(await statuses(desk)) == ["1.0.0", "1.1.0"]


async def test_only_the_newest_version_is_replaced(desk: PublicDesk) -> None:
    made = await desk.define()
    await desk.admin.put(f"{PATH}/{made['id']}", {"lab_yaml": OTHER})
    late = await desk.admin.put(f"{PATH}/{made['id']}", {"lab_yaml": OTHER.replace("2", "3")})
    assert (late.status, late.kind) == (409, "conflict")
    assert "1.1.0 is newer" in late.body["detail"]


async def test_a_change_names_the_version_that_its_sender_read(desk: PublicDesk) -> None:
    made = await desk.define()
    path = f"{PATH}/{made['id']}"
    tag = (await desk.viewer.get(path)).headers["etag"]
    assert (await desk.admin.put(path, {"lab_yaml": OTHER}, if_match='"9"')).status == 412
    assert (await desk.admin.post(f"{path}/deprecate", if_match='"9"')).status == 412
    assert (await desk.admin.delete(path, if_match='"9"')).status == 412
    assert (await desk.admin.post(f"{path}/deprecate", if_match=tag)).body["status"] == "deprecated"


class Killed(Exception):
    """The process ends here."""


class KilledStore(MemoryStore):
    """Ends the process at the next change of a definition."""

    is_armed = False

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        if self.is_armed and document.kind == "lablet-definition":
            raise Killed
        await super().replace(document, fence)


async def test_a_crash_between_the_two_writes_of_a_replacement_is_finished_by_the_next_try() -> None:
    store = KilledStore()
    desk = await PublicDesk(store=store).open()
    made = await desk.define()
    store.is_armed = True
    with pytest.raises(Killed):
        await replace_definition(
            desk.records, made["id"], lab_yaml=OTHER, by="ann", preconditions=UNCONDITIONAL
        )
    store.is_armed = False
    desk.restart()
    assert await statuses(desk) == {"1.0.0": "active", "1.1.0": "active"}
    await desk.admin.put(f"{PATH}/{made['id']}", {"lab_yaml": OTHER})
    assert await statuses(desk) == {"1.0.0": "deprecated", "1.1.0": "active"}


async def test_a_name_means_its_newest_active_version(desk: PublicDesk) -> None:
    made = await desk.define(version="1.9.0")
    await desk.define(version="1.10.0", lab_yaml=OTHER)
    assert (await desk.viewer.get(f"{PATH}/by-name/branch")).body["version"] == "1.10.0"
    old = await desk.viewer.get(f"{PATH}/by-name/branch?version=1.9.0")
    assert old.body["id"] == made["id"]
    for wrong in ("by-name/other", "by-name/branch?version=3.0.0", "unknown-id", "unknown-id/topology"):
        missing = await desk.viewer.get(f"{PATH}/{wrong}")
        assert (missing.status, missing.kind) == (404, "not-found")
        assert "GET /api/lablet-definitions" in missing.body["detail"]


async def test_a_deleted_definition_is_hidden_and_still_found_by_its_id(desk: PublicDesk) -> None:
    made = await desk.define()
    path = f"{PATH}/{made['id']}"
    assert (await desk.admin.delete(path)).status == 204
    assert (await desk.admin.delete(path)).status == 204
    assert (await desk.viewer.get(PATH)).body["items"] == []
    assert (await desk.viewer.get(path)).body["status"] == "archived"
    refused = await desk.admin.put(path, {"lab_yaml": OTHER})
    assert (refused.status, refused.kind) == (409, "conflict")
    assert await events(desk) == ["definition_created", "definition_deleted"]


async def test_pages_of_definitions_cover_the_list_once_by_name_and_number(desk: PublicDesk) -> None:
    for name, version in (("b", "1.10.0"), ("a", "1.0.0"), ("b", "1.9.0"), ("c", "1.0.0")):
        await desk.define(name, version=version)
    seen, path = [], f"{PATH}?limit=1"
    for _ in range(4):
        page = (await desk.viewer.get(path)).body
        seen += [(each["name"], each["version"]) for each in page["items"]]
        path = f"{PATH}?limit=1&after={page['next']}"
    assert seen == [("a", "1.0.0"), ("b", "1.9.0"), ("b", "1.10.0"), ("c", "1.0.0")]
    assert page["next"] is None


async def test_an_analysis_says_where_the_lab_could_run_and_stores_nothing(desk: PublicDesk) -> None:
    before = await desk.documents()
    found = await desk.viewer.post(f"{PATH}/analyse", {"lab_yaml": BRANCH_OFFICE})
    assert found.status == 200
    fits = {each["name"]: each for each in found.body["fits"]}
    assert fits["metal"]["is_possible"]
    assert fits["w1"]["is_possible"]
    assert (
        fits["micro"]["reason"]
        == "cpu: needs 3 CPUs, has 2; memory: needs 5.5 GB, has 1; storage: needs 21 GB, has 20"
    )
    assert found.body["needs"]["nodes"] == 2
    assert await desk.documents() == before


async def test_definitions_are_published_on_the_event_stream(desk: PublicDesk) -> None:
    made = await desk.define()
    await desk.admin.put(f"{PATH}/{made['id']}", {"lab_yaml": OTHER})
    newest = (await desk.viewer.get(f"{PATH}/by-name/branch")).body
    await desk.admin.delete(f"{PATH}/{newest['id']}")
    assert {kind: count for kind, count in desk.parts.hub.events.items() if "definition" in kind} == {
        "lablet.definition.created": 1,
        "lablet.definition.updated": 1,
        "lablet.definition.deprecated": 1,
        "lablet.definition.deleted": 1,
    }


async def test_a_topology_of_a_mebibyte_may_be_sent(desk: PublicDesk) -> None:
    text = BRANCH_OFFICE + "#\n" * 400_000
    assert (await desk.define(lab_yaml=text))["node_count"] == 4
