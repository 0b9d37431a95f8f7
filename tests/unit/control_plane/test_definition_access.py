"""The login of a definition: kept as a secret, shown with the access to a session and nowhere else."""

from typing import Any, Final

import msgspec
import pytest

from lcm.control_plane.access.secrets import KIND
from lcm.control_plane.commands.lablets.definition_access import set_login
from lcm.control_plane.records.access_logins import PURPOSE, login_of
from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.replication.feed import DefinitionCommitted
from lcm.control_plane.streaming.event_names import DefinitionEvent, definition_event_of
from lcm.domain.errors import NotReadyYet
from lcm.domain.lablet.states import RUNNING
from lcm.rest.lablet_access import AccessLogin, PortAccess
from lcm.rest.lablet_requests import NewDefinition
from support.canaries import Canaries
from support.lablet_bench import LabletBench
from support.people import Answer, PublicDesk
from unit.domain.lablet.test_topology import BRANCH_OFFICE

PATH = "/api/lablet-definitions"
LOGIN: Final = {"username": "canary-user-of-nodes", "password": 'Cn7~"canary\\of+nodes/=%41'}
OTHER: Final = {"username": "canary-user-of-nodes", "password": "another-canary-of-nodes"}


@pytest.fixture
async def desk() -> PublicDesk:
    return await PublicDesk().open()


async def logins(desk: PublicDesk) -> int:
    return sum(each.id.startswith(PURPOSE) for each in await desk.store.list_all(KIND))


async def login(desk: PublicDesk, definition_id: str) -> Any:
    return msgspec.to_builtins(await login_of(desk.records, definition_id))


async def test_a_definition_only_says_that_it_has_a_login(desk: PublicDesk) -> None:
    assert (await desk.define("plain"))["has_access_login"] is False
    made = await desk.define(access=LOGIN)
    assert made["has_access_login"] is True
    assert await login(desk, made["id"]) == LOGIN
    canaries = Canaries(dict(LOGIN))
    for path in (PATH, f"{PATH}/{made['id']}", f"{PATH}/by-name/branch", "/api/lablet-audit"):
        canaries.collect(path, (await desk.admin.get(path)).text)
    assert canaries.found() == []


async def test_the_next_version_keeps_the_login_of_its_own_accord(desk: PublicDesk) -> None:
    made = await desk.define(access=LOGIN)
    body = {"lab_yaml": BRANCH_OFFICE.replace("Branch office", "Branch office 2")}
    following = (await desk.admin.put(f"{PATH}/{made['id']}", body)).body
    assert following["has_access_login"] is True
    await desk.admin.put(f"{PATH}/{made['id']}/access", OTHER)
    assert (await login(desk, made["id"]), await login(desk, following["id"])) == (OTHER, LOGIN)


async def test_another_login_in_a_replacement_makes_a_version_and_the_same_one_does_not(
    desk: PublicDesk,
) -> None:
    made = await desk.define(access=LOGIN)
    path = f"{PATH}/{made['id']}"
    same = await desk.admin.put(path, {"lab_yaml": BRANCH_OFFICE, "access": LOGIN})
    assert (same.status, same.body["id"]) == (200, made["id"])
    for _ in range(2):
        other = await desk.admin.put(path, {"lab_yaml": BRANCH_OFFICE, "access": OTHER})
        assert (other.status, other.body["version"]) == (200, "1.0.1")
    assert (await login(desk, made["id"]), await login(desk, other.body["id"])) == (LOGIN, OTHER)
    assert await logins(desk) == 2


async def test_a_login_is_set_and_removed_and_the_old_one_is_not_kept(desk: PublicDesk) -> None:
    made = await desk.define()
    path = f"{PATH}/{made['id']}/access"
    for wanted in (LOGIN, OTHER):
        assert (await desk.admin.put(path, wanted)).body["has_access_login"] is True
        assert (await login(desk, made["id"]), await logins(desk)) == (wanted, 1)
    assert (await desk.admin.delete(path)).body["has_access_login"] is False
    assert (await login(desk, made["id"]), await logins(desk)) == (None, 0)
    again = await desk.admin.delete(path)
    entries = [each for each in await desk.records.lablet_audit.newest() if "login" in each.event]
    assert sorted(each.reason.rpartition(" ")[2] for each in entries) == ["removed", "set", "set"]
    assert again.headers["etag"] == '"4"'


async def test_a_repeated_request_leaves_one_login(desk: PublicDesk) -> None:
    body = {"name": "branch", "lab_yaml": BRANCH_OFFICE, "access": LOGIN}
    made = await desk.admin.post(PATH, body, idempotency_key="k")
    assert (await desk.admin.post(PATH, body, idempotency_key="k")).body == made.body
    path = f"{PATH}/{made.body['id']}/access"
    first = await desk.admin.put(path, OTHER, idempotency_key="l")
    again = await desk.admin.put(path, OTHER, idempotency_key="l")
    assert first.headers["etag"] == again.headers["etag"]
    assert (await login(desk, made.body["id"]), await logins(desk)) == (OTHER, 1)


async def test_a_refused_request_leaves_no_login(desk: PublicDesk) -> None:
    made = await desk.define()
    path = f"{PATH}/{made['id']}"

    async def refused(answer: Answer, kind: str) -> None:
        assert (answer.kind, await logins(desk)) == (kind, 0)

    body = {"name": "branch", "lab_yaml": BRANCH_OFFICE, "access": LOGIN}
    await refused(await desk.admin.post(PATH, body), "name-taken")
    stale = await desk.admin.put(f"{path}/access", LOGIN, if_match='"7"')
    await refused(stale, "precondition-failed")
    await refused(await desk.operator.put(f"{path}/access", LOGIN), "forbidden")
    for wrong in (
        {"username": "a"},
        {**LOGIN, "password": ""},
        {**LOGIN, "username": "a\n"},
        {**LOGIN, "x": 1},
    ):
        await refused(await desk.admin.put(f"{path}/access", wrong), "invalid")
    await desk.admin.delete(path)
    await refused(await desk.admin.put(f"{path}/access", LOGIN), "conflict")
    await refused(await desk.admin.put(f"{PATH}/none/access", LOGIN), "not-found")


async def test_an_archived_definition_keeps_no_login(desk: PublicDesk) -> None:
    made = await desk.define(access=LOGIN)
    assert (await desk.admin.delete(f"{PATH}/{made['id']}")).status == 204
    assert (await login(desk, made["id"]), await logins(desk)) == (None, 0)


async def test_a_login_that_is_replaced_while_it_is_read_is_read_again(desk: PublicDesk) -> None:
    made = await desk.define(access=LOGIN)
    secrets, read = desk.records.secrets, desk.records.secrets.get

    async def replaced_before(purpose: str, ref: str) -> str | None:
        vars(secrets).pop("get")
        await set_login(desk.records, made["id"], AccessLogin(**OTHER), by="ada")
        return await read(purpose, ref)

    vars(secrets)["get"] = replaced_before
    assert await login(desk, made["id"]) == OTHER
    for each in await desk.store.list_all(KIND):
        await desk.store.delete(KIND, each.id, each.version)
    with pytest.raises(NotReadyYet, match="ask again"):
        await login_of(desk.records, made["id"])


async def test_browsers_and_other_control_planes_learn_that_there_is_a_login_and_not_which(
    desk: PublicDesk,
) -> None:
    made, canaries = await desk.define(), Canaries(dict(LOGIN))
    events: list[DefinitionEvent | None] = []

    def follow(before: StoredDefinition | None, after: StoredDefinition) -> None:
        events.append(definition_event_of(before, after))
        canaries.collect("feed", msgspec.json.encode(DefinitionCommitted(before, after)))
        canaries.collect("event", msgspec.json.encode(after.view()))

    desk.records.definitions.subscribe(follow)
    path = f"{PATH}/{made['id']}/access"
    for request in (desk.admin.put(path, LOGIN), desk.admin.put(path, LOGIN), desk.admin.delete(path)):
        assert (await request).status == 200
    assert events == [DefinitionEvent.UPDATED, None, DefinitionEvent.UPDATED]
    assert len(canaries.collected) == 6
    assert canaries.found() == []


async def test_people_get_the_login_with_their_session_and_nothing_else_shows_it() -> None:
    bench = await LabletBench().open()
    definition_id = (await bench.session()).definition_id
    await bench.admin.put(f"{PATH}/{definition_id}/access", LOGIN)
    canaries = Canaries(dict(LOGIN))
    session = await bench.drive(RUNNING)
    access = await bench.operator.get(f"/api/lablet-sessions/{session.id}/access")
    [port] = access.body["ports"]
    assert {name: port[name] for name in LOGIN} == LOGIN
    for path in ("/api/lablet-sessions", f"/api/lablet-sessions/{session.id}", PATH, "/api/lablet-audit"):
        canaries.collect(path, (await bench.admin.get(path)).text)
    for kind in {kind for kind, _ in await bench.documents()} | {KIND}:
        for document in await bench.store.list_all(kind):
            canaries.collect(f"{kind} {document.id}", document.body)
    sent = NewDefinition(name="b", lab_yaml="", access=AccessLogin(**LOGIN))
    canaries.collect("text of what was sent", f"{sent!r} {PortAccess(**port)!r}")
    assert canaries.found() == []
