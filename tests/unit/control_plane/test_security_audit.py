"""The security audit log: no change without its entry, no entry without its change, no secret in either."""

import json
from typing import Any

import pytest

from lcm.control_plane.access.roles import Role
from lcm.control_plane.access.security_log import MAX_ENTRIES, AuditedStore, SecurityLog
from lcm.control_plane.store.bounded_log import BoundedLog
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import LOG_KIND, Change, Document, StoreUnavailable
from lcm.domain.security import SecurityEntry
from support import asgi
from support.people import KEYS, PublicDesk
from support.virtual_time import VirtualClock


@pytest.fixture
async def desk() -> PublicDesk:
    desk = PublicDesk()
    await desk.open()
    return desk


async def audited(desk: PublicDesk, **query: str) -> list[dict[str, Any]]:
    """The entries that an admin finds, oldest first."""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = await desk.admin.get(f"/api/audit?{asked}")
    assert answer.status == 200
    items: list[dict[str, Any]] = answer.body["items"]
    return items[::-1]


async def test_the_log_names_the_principal_the_address_the_action_and_the_change(desk: PublicDesk) -> None:
    made = (await desk.admin.post("/api/tokens", {"name": "ci", "role": "operator"})).body["details"]
    await desk.clock.sleep(1)
    await desk.admin.delete(f"/api/tokens/{made['id']}")
    created, revoked = await audited(desk, target="access-token")
    assert (
        created.items()
        >= {
            "action": "POST /api/tokens",
            "outcome": "done",
            "address": "127.0.0.1",
            "principal_id": desk.admin.id,
            "principal_name": "admin",
            "kind": "key",
            "target": f"access-token/{made['id']}",
            "before": {},
        }.items()
    )
    assert created["after"].items() >= {"name": "ci", "role": "operator"}.items()
    assert revoked["action"] == "DELETE /api/tokens/{token_id}"
    assert revoked["before"].items() >= {"name": "ci", "role": "operator"}.items()
    assert revoked["after"] == {}


async def test_no_security_setting_changes_without_an_entry(desk: PublicDesk) -> None:
    for method, path, body in (
        ("PATCH", "/api/settings/discovery", {"ami_filter": "CML*"}),
        ("PATCH", "/api/settings/discovery", {"ami_filter": "CML-2*"}),
        ("PUT", "/api/settings/license", {"token": "a-license-token"}),
        ("DELETE", "/api/settings/license", None),
        ("POST", "/api/worker-templates/large/disable", None),
    ):
        await desk.admin.send(method, path, body, if_match="*")
        await desk.clock.sleep(1)
    found = [(entry["action"], entry["target"]) for entry in await audited(desk)]
    terms = ("PUT /api/settings/license", "settings/license")
    assert terms in found, "each kind of document that a request writes"
    assert [each for each in found if each != terms] == [
        ("PATCH /api/settings/discovery", "settings/discovery"),
        ("PATCH /api/settings/discovery", "settings/discovery"),
        ("PUT /api/settings/license", "secret/license/fleet"),
        ("DELETE /api/settings/license", "secret/license/fleet"),
        ("POST /api/worker-templates/{name}/disable", "worker-template/large"),
    ]
    changed = (await audited(desk, target="settings/discovery"))[1]
    assert (changed["before"], changed["after"]) == ({"ami_filter": "CML*"}, {"ami_filter": "CML-2*"})


async def test_no_entry_holds_a_secret(desk: PublicDesk) -> None:
    token = (await desk.admin.post("/api/tokens", {"name": "ci", "role": "operator"})).body["token"]
    await desk.admin.put("/api/settings/license", {"token": "a-license-token"})
    login = {"username": "lcm", "password": "a-password-of-cml"}
    assert (await desk.admin.put("/api/workers/w1/cml-login", login)).status == 202
    await desk.admin.get(f"/api/audit?target={token}")
    await asgi.request(
        desk.parts.app, "GET", f"/api/workers/{token}", {"authorization": "Bearer guess"}, None
    )
    kept = json.dumps(await audited(desk))
    kept += (await desk.admin.get("/api/audit?format=csv")).text.decode()
    assert "/cml-login" in kept
    for secret in (token, "a-license-token", "a-password-of-cml", KEYS.admin):
        assert secret not in kept
    assert "verifier" not in kept


async def test_signing_in_and_out_and_failing_to_are_recorded(desk: PublicDesk) -> None:
    app, headers = desk.parts.app, {"content-type": "application/json"}
    body = json.dumps({"token": KEYS.operator}).encode()
    assert (await asgi.request(app, "POST", "/api/session", headers, body))[0] == 200
    await desk.clock.sleep(1)
    wrong = json.dumps({"token": "guess"}).encode()
    assert (await asgi.request(app, "POST", "/api/session", headers, wrong))[0] == 401
    await desk.clock.sleep(1)
    assert (await asgi.request(app, "GET", "/api/internal/workers", {"x-api-key": "guess"}, None))[0] == 401
    await desk.clock.sleep(1)
    assert (await desk.viewer.post("/api/tokens", {"name": "ci", "role": "admin"})).status == 403
    signed_in, sign_in_refused, key_refused, denied = await audited(desk)
    assert signed_in["target"].startswith("browser-session/")
    assert (signed_in["action"], signed_in["principal_name"]) == ("POST /api/session", "operator")
    assert (sign_in_refused["action"], sign_in_refused["target"]) == ("authenticate", "POST /api/session")
    assert (sign_in_refused["outcome"], sign_in_refused["principal_id"]) == ("refused", None)
    assert key_refused["target"] == "GET /api/internal/workers"
    assert (denied["action"], denied["target"]) == ("authorize", "POST /api/tokens")
    assert denied["principal_id"] == desk.viewer.id


async def test_a_change_whose_entry_cannot_be_written_is_refused() -> None:
    class WithoutRoomForEntries(MemoryStore):
        async def commit(self, change: Change, entry: Document) -> None:
            raise StoreUnavailable("the disk is full")

    desk = PublicDesk(store=WithoutRoomForEntries())
    await desk.open()
    assert (await desk.admin.post("/api/tokens", {"name": "ci", "role": "admin"})).status == 503
    assert (await desk.admin.put("/api/settings/license", {"token": "a-license-token"})).status == 503
    assert (await desk.admin.get("/api/tokens")).body["items"] == []
    assert (await desk.admin.get("/api/settings/license")).body["has_token"] is False


async def test_a_request_that_changes_nothing_leaves_no_entry(desk: PublicDesk) -> None:
    await desk.admin.get("/api/workers")
    await desk.admin.delete("/api/tokens/unknown")
    await desk.admin.post("/api/worker-templates/unknown/disable")
    assert await audited(desk) == []


async def test_only_admins_read_the_log_and_it_can_be_filtered(desk: PublicDesk) -> None:
    for person in (desk.viewer, desk.operator):
        assert (await person.get("/api/audit")).status == 403
    await desk.clock.sleep(3600)
    noon = desk.clock.now()
    await desk.admin.post("/api/tokens", {"name": "ci", "role": "viewer"})
    await desk.operator.post("/api/workers/w1/stop")
    assert len(await audited(desk, outcome="refused")) == 2
    assert [e["action"] for e in await audited(desk, principal="admin")] == ["POST /api/tokens"]
    assert [e["principal_id"] for e in await audited(desk, target="worker/")] == [desk.operator.id]
    moment = noon.isoformat().replace("+00:00", "Z")
    assert len(await audited(desk, since=moment)) == 2
    assert len(await audited(desk, until=moment)) == 2
    assert await audited(desk, address="elsewhere") == []
    page = (await desk.admin.get("/api/audit?limit=3")).body
    rest = (await desk.admin.get(f"/api/audit?limit=3&before={page['next']}")).body
    assert [len(page["items"]), len(rest["items"]), rest["next"]] == [3, 1, None]


async def test_refusals_never_push_out_changes() -> None:
    store, clock = MemoryStore(), VirtualClock()
    log = SecurityLog(store, clock)
    small: BoundedLog[SecurityEntry] = BoundedLog(store, "security-refusal", SecurityEntry, 10)
    log._refusals = small
    await store.insert(Document(LOG_KIND, "first", 1, b"{}"))
    for number in range(100):
        await log.record_refusal("authenticate", "10.0.0.1", None, f"GET /{number}", "wrong")
    await log.make_room()
    assert len(await store.list_all(LOG_KIND)) == 1
    assert len(await store.list_all("security-refusal")) <= 10
    assert MAX_ENTRIES >= 10_000


async def test_the_oldest_changes_make_room_for_new_ones() -> None:
    store = MemoryStore()
    log = SecurityLog(store, VirtualClock())
    small: BoundedLog[SecurityEntry] = BoundedLog(store, LOG_KIND, SecurityEntry, 10)
    log._changes = small
    for number in range(100):
        await store.insert(Document(LOG_KIND, f"{number:03}", 1, b"{}"))
    await log.make_room()
    kept = sorted(document.id for document in await store.list_all(LOG_KIND))
    assert 0 < len(kept) <= 10
    assert kept[-1] == "099"


async def test_what_a_service_writes_is_not_taken_for_a_change_of_a_person() -> None:
    plain = MemoryStore()
    store = AuditedStore(plain, VirtualClock())
    await store.insert(Document("worker", "a", 1, b"{}"))
    await store.replace(Document("worker", "a", 2, b"{}"))
    await store.delete("worker", "a", 2)
    assert await plain.list_all(LOG_KIND) == []


@pytest.mark.parametrize(
    "name",
    ["worker-controller", "Control Plane", "resource_scheduler", "lablet.controller", "idle detection"],
)
async def test_no_token_acts_under_the_name_of_a_service(desk: PublicDesk, name: str) -> None:
    assert (await desk.admin.post("/api/tokens", {"name": name, "role": Role.ADMIN.label})).status == 422


async def test_a_timeline_keeps_who_it_was_whatever_name_they_go_by(desk: PublicDesk) -> None:
    """M5: a name can be taken over, an id cannot."""
    made = (await desk.admin.post("/api/tokens", {"name": "ann", "role": "operator"})).body
    bearer = {"authorization": f"Bearer {made['token']}", "content-type": "application/json"}
    status, _ = await asgi.request(desk.parts.app, "POST", "/api/workers/w1/stop", bearer, None)
    assert status == 202
    lines = (await desk.viewer.get("/api/workers/w1/timeline")).body["items"]
    assert [(line["by"], line["principal_id"]) for line in lines] == [
        ("ann", None),
        ("ann", f"token:{made['details']['id']}"),
    ]
    await desk.operator.post("/api/workers/w1/start")
    first, second, third = (await desk.viewer.get("/api/workers/w1/timeline")).body["items"]
    assert [first, second] == lines
    assert third["principal_id"] == desk.operator.id


async def test_the_history_of_a_session_keeps_who_it_was(desk: PublicDesk) -> None:
    await desk.define()
    session = await desk.book()
    await desk.operator.post(f"/api/lablet-sessions/{session['id']}/end")
    history = (await desk.operator.get(f"/api/lablet-sessions/{session['id']}/history")).body["items"]
    assert {line["principal_id"] for line in history} == {desk.operator.id}
