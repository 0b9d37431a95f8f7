"""Default deny: every route, every role, and what bad input gets."""

import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from fastapi import APIRouter, FastAPI

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.api.app import openapi_document
from lcm.control_plane.main import assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from support.api import Api, admin_of, person
from support.canaries import watched_session
from support.processes import RunningLcm, running_lcm

ANYBODY, VIEWER, OPERATOR, ADMIN, CONTROLLER = "anybody", "viewer", "operator", "admin", "controller"

ROUTES = {
    ("GET", "/api/workers"): VIEWER,
    ("POST", "/api/workers"): ADMIN,
    ("GET", "/api/workers/{worker_id}"): VIEWER,
    ("DELETE", "/api/workers/{worker_id}"): ADMIN,
    ("GET", "/api/workers/{worker_id}/timeline"): VIEWER,
    ("GET", "/api/workers/{worker_id}/cml"): VIEWER,
    ("GET", "/api/workers/{worker_id}/resources"): VIEWER,
    ("GET", "/api/workers/{worker_id}/history"): VIEWER,
    ("GET", "/api/workers/{worker_id}/labs"): VIEWER,
    ("GET", "/api/labs"): VIEWER,
    ("GET", "/api/audit"): ADMIN,
    ("GET", "/api/system"): VIEWER,
    ("GET", "/api/worker-templates/{name}/source"): VIEWER,
    ("PUT", "/api/worker-templates/{name}"): ADMIN,
    ("DELETE", "/api/worker-templates/{name}/changes"): ADMIN,
    ("GET", "/api/activity"): VIEWER,
    ("POST", "/api/session/links"): VIEWER,
    ("GET", "/api/session/all"): VIEWER,
    ("DELETE", "/api/session/all"): VIEWER,
    ("POST", "/api/workers/{worker_id}/labs/discover"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/labs/{lab_id}/start"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/labs/{lab_id}/stop"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/labs/{lab_id}/remove"): ADMIN,
    ("POST", "/api/workers/{worker_id}/labs/{lab_id}/adopt"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/labs/{lab_id}/disown"): ADMIN,
    ("GET", "/api/workers/{worker_id}/activity"): VIEWER,
    ("POST", "/api/workers/{worker_id}/start"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/stop"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/retry"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/refresh"): OPERATOR,
    ("PUT", "/api/workers/{worker_id}/tags"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/drain"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/cancel-drain"): OPERATOR,
    ("PUT", "/api/workers/{worker_id}/hold"): OPERATOR,
    ("DELETE", "/api/workers/{worker_id}/hold"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/idle-detection/enable"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/idle-detection/disable"): OPERATOR,
    ("GET", "/api/workers/{worker_id}/idle-status"): VIEWER,
    ("GET", "/api/workers/{worker_id}/explain"): VIEWER,
    ("POST", "/api/workers/{worker_id}/license"): ADMIN,
    ("DELETE", "/api/workers/{worker_id}/license"): ADMIN,
    ("POST", "/api/workers/{worker_id}/adopt"): ADMIN,
    ("PUT", "/api/workers/{worker_id}/cml-certificate"): ADMIN,
    ("PUT", "/api/workers/{worker_id}/cml-login"): ADMIN,
    ("DELETE", "/api/workers/{worker_id}/cml-login"): ADMIN,
    ("GET", "/api/settings/license"): VIEWER,
    ("PUT", "/api/settings/license"): ADMIN,
    ("DELETE", "/api/settings/license"): ADMIN,
    ("GET", "/api/license-debts"): VIEWER,
    ("POST", "/api/license-debts/{worker_id}/settle"): ADMIN,
    ("GET", "/api/scaling/audit"): VIEWER,
    ("GET", "/api/cost"): VIEWER,
    ("GET", "/api/worker-templates"): VIEWER,
    ("GET", "/api/worker-templates/{name}"): VIEWER,
    ("DELETE", "/api/worker-templates/{name}"): ADMIN,
    ("POST", "/api/worker-templates/{name}/enable"): ADMIN,
    ("POST", "/api/worker-templates/{name}/disable"): ADMIN,
    ("GET", "/api/regions"): VIEWER,
    ("GET", "/api/settings/discovery"): VIEWER,
    ("PATCH", "/api/settings/discovery"): ADMIN,
    ("GET", "/api/session"): VIEWER,
    ("POST", "/api/session"): ANYBODY,
    ("GET", "/api/session/sign-in"): ANYBODY,
    ("GET", "/api/session/oidc"): ANYBODY,
    ("GET", "/api/session/oidc/callback"): ANYBODY,
    ("DELETE", "/api/session"): ANYBODY,
    ("GET", "/api/tokens"): ADMIN,
    ("POST", "/api/tokens"): ADMIN,
    ("DELETE", "/api/tokens/{token_id}"): ADMIN,
    ("POST", "/api/secret-keys/rotate"): ADMIN,
    ("GET", "/api/events/stream"): VIEWER,
    ("GET", "/api/lablet-definitions"): VIEWER,
    ("POST", "/api/lablet-definitions"): ADMIN,
    ("POST", "/api/lablet-definitions/analyse"): VIEWER,
    ("GET", "/api/lablet-definitions/by-name/{name}"): VIEWER,
    ("GET", "/api/lablet-definitions/{definition_id}"): VIEWER,
    ("GET", "/api/lablet-definitions/{definition_id}/topology"): VIEWER,
    ("GET", "/api/lablet-definitions/{definition_id}/analysis"): VIEWER,
    ("PUT", "/api/lablet-definitions/{definition_id}"): ADMIN,
    ("POST", "/api/lablet-definitions/{definition_id}/deprecate"): ADMIN,
    ("DELETE", "/api/lablet-definitions/{definition_id}"): ADMIN,
    ("POST", "/api/lablet-sessions/{session_id}/abandon"): ADMIN,
    ("GET", "/api/lablet-sessions"): VIEWER,
    ("POST", "/api/lablet-sessions"): OPERATOR,
    ("POST", "/api/lablet-sessions/batch"): OPERATOR,
    ("GET", "/api/lablet-sessions/{session_id}"): VIEWER,
    ("GET", "/api/lablet-sessions/{session_id}/history"): VIEWER,
    ("POST", "/api/lablet-sessions/{session_id}/end"): VIEWER,
    ("POST", "/api/lablet-sessions/{session_id}/extend"): VIEWER,
    ("POST", "/api/lablet-sessions/{session_id}/retry"): VIEWER,
    ("POST", "/api/lablet-sessions/{session_id}/restart-lab"): VIEWER,
    ("PUT", "/api/lablet-definitions/{definition_id}/access"): ADMIN,
    ("DELETE", "/api/lablet-definitions/{definition_id}/access"): ADMIN,
    ("GET", "/api/lablet-sessions/{session_id}/access"): VIEWER,
    ("GET", "/api/lablet-batches/{batch_id}/access"): VIEWER,
    ("GET", "/api/lablet-sessions/{session_id}/explain"): VIEWER,
    ("GET", "/api/lablet-sessions/{session_id}/evidence"): VIEWER,
    ("GET", "/api/lablet-sessions/{session_id}/evidence/{n}"): VIEWER,
    ("POST", "/api/scheduling/preview"): VIEWER,
    ("POST", "/api/plan"): OPERATOR,
    ("GET", "/api/scheduling/queue"): VIEWER,
    ("GET", "/api/scheduling/calendar"): VIEWER,
    ("GET", "/api/placements"): VIEWER,
    ("POST", "/api/internal/placements"): CONTROLLER,
    ("GET", "/api/lablet-batches/{batch_id}"): VIEWER,
    ("POST", "/api/lablet-batches/{batch_id}/end"): OPERATOR,
    ("GET", "/api/lablet-audit"): OPERATOR,
    ("GET", "/api/internal/peers/feed"): CONTROLLER,
    ("GET", "/api/internal/workers"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/status"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/verify"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/launch-intent"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/launch-intent/withdraw"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/ec2-details"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/cml-data"): CONTROLLER,
    ("POST", "/api/internal/workers/metrics"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/metrics"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/activity-events"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/labs/{lab_id}/stats"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/labs"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/definitions"): CONTROLLER,
    ("GET", "/api/internal/labs/work"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/configs-extracted"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/labs/{lab_id}"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/labs/{lab_id}/outcome"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/labs/{lab_id}/gone"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/lab-state-change"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/ws-status"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/trigger-lab-discovery"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/idle-status"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/detect-idle"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/drain"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/cancel-drain"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/start"): CONTROLLER,
    ("GET", "/api/internal/lablet-sessions"): CONTROLLER,
    ("GET", "/api/internal/lablet-sessions/{session_id}"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/move-windows"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/schedule"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/waiting"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/reject"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/progress"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/status"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/lab-intent"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/lab"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/unschedule"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/cleaned"): CONTROLLER,
    ("POST", "/api/internal/lablet-sessions/{session_id}/evidence"): CONTROLLER,
    ("GET", "/api/internal/lablet-sessions/{session_id}/topology"): CONTROLLER,
    ("GET", "/api/internal/fleet-identity"): CONTROLLER,
    ("GET", "/api/internal/scheduling/snapshot"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/recalculate-capacity"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/terminate"): CONTROLLER,
    ("GET", "/api/internal/worker-templates"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/license-token"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/license/observe-registration"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}/cml-login"): CONTROLLER,
    **{
        ("POST", f"/api/internal/workers/{{worker_id}}/license/{step}-{operation}"): CONTROLLER
        for step in ("start", "complete", "fail")
        for operation in ("registration", "deregistration")
    },
    ("POST", "/api/internal/workers/scale-up"): CONTROLLER,
    ("POST", "/api/internal/scaling/audit"): CONTROLLER,
    ("POST", "/api/internal/workers/bulk-import"): CONTROLLER,
    ("POST", "/api/internal/workers/cleanup"): CONTROLLER,
    ("GET", "/api/internal/settings/discovery"): CONTROLLER,
    ("GET", "/api/internal/worker-templates/by-name/{name}"): CONTROLLER,
    ("POST", "/api/internal/leadership"): CONTROLLER,
    ("POST", "/api/internal/processes"): CONTROLLER,
    ("GET", "/health"): ANYBODY,
    ("GET", "/ready"): ANYBODY,
    ("GET", "/info"): VIEWER,
    ("GET", "/metrics"): ANYBODY,
    ("GET", "/api/openapi.json"): VIEWER,
    ("GET", "/"): ANYBODY,
    ("GET", "/favicon.svg"): ANYBODY,
    ("*", "/assets"): ANYBODY,
}
UNDOCUMENTED = {
    ("GET", "/metrics"),
    ("GET", "/api/openapi.json"),
    ("GET", "/"),
    ("GET", "/favicon.svg"),
    ("*", "/assets"),
}
PEOPLE = (VIEWER, OPERATOR, ADMIN)


def keys_of(lcm: RunningLcm) -> dict[str, str]:
    stored: dict[str, str] = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    return stored


@pytest.fixture
def keys(lcm: RunningLcm) -> dict[str, str]:
    return keys_of(lcm)


@pytest.fixture
async def people(lcm: RunningLcm, keys: dict[str, str]) -> AsyncIterator[dict[str, Api]]:
    async with AsyncExitStack() as stack:
        yield {
            role: await stack.enter_async_context(person(lcm.url, keys.get(role)))
            for role in (ANYBODY, *PEOPLE)
        }


@asynccontextmanager
async def signed_in(lcm: RunningLcm, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser with a session cookie and nothing else."""
    async with watched_session(lcm.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.post("/api/session", json={"token": token or lcm.ready.token}) as response:
            assert response.status == 200
        yield browser


def routes_of(app: FastAPI | APIRouter) -> set[tuple[str, str]]:
    """Everything the application answers, whether documented or not; mounts answer to any method."""
    found: set[tuple[str, str]] = set()
    for route in app.routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            found |= routes_of(included)
            continue
        methods = getattr(route, "methods", None) or {"*"}
        found |= {(method, str(getattr(route, "path", route))) for method in methods - {"HEAD"}}
    return found


async def test_the_link_printed_at_start_signs_one_browser_in_and_holds_no_key(
    lcm: RunningLcm, keys: dict[str, str]
) -> None:
    """Here, because signing out everywhere, as the tests of all routes do, ends links too."""
    assert not [key for key in keys.values() if key in lcm.ready.url]
    async with watched_session(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(lcm.ready.url, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/")
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
        async with browser.get(f"{lcm.url}/api/session") as response:
            assert (await response.json()).items() >= {"actor": "admin", "role": "admin"}.items()
    async with (
        watched_session() as another,
        another.get(lcm.ready.url, allow_redirects=False) as response,
    ):
        assert "Set-Cookie" not in response.headers


async def test_every_route_says_who_may_use_it() -> None:
    clock, ids, store = SystemClock(), RandomIds(), MemoryStore()
    parts = assemble(
        store,
        MemoryKv(clock, ids),
        AccessKeys("v", "o", "a", "c"),
        clock=clock,
        ids=ids,
        policies=Policies(regions=(), default_region=""),
        secrets=SecretStore(store, SecretBox.of(bytes(32))),
    )
    assert routes_of(parts.app) == set(ROUTES)
    documented = {
        (method.upper(), path)
        for path, operations in openapi_document()["paths"].items()
        for method in operations
    }
    assert set(ROUTES) - documented == UNDOCUMENTED


def test_the_document_names_the_role_that_each_route_needs() -> None:
    named = {
        (method.upper(), path): operation.get("x-role", ANYBODY)
        for path, operations in openapi_document()["paths"].items()
        for method, operation in operations.items()
    }
    needed = {
        route: role for route, role in ROUTES.items() if route not in UNDOCUMENTED and role != CONTROLLER
    }
    assert {route: named[route] for route in needed} == needed


@pytest.mark.parametrize(("route", "needed"), ROUTES.items(), ids=[" ".join(route) for route in ROUTES])
async def test_a_route_lets_in_whom_it_should_and_nobody_else(
    route: tuple[str, str], needed: str, people: dict[str, Api]
) -> None:
    method, template = (route[0].replace("*", "GET"), route[1])
    path = template.format(
        worker_id="no-such-worker",
        lab_id="no-such-lab",
        name="no-such-template",
        token_id="no-such-token",
        session_id="no-such-session",
        definition_id="no-such-definition",
        batch_id="no-such-batch",
        n="1",
    )
    for role, api in people.items():
        async with api.session.request(method, path) as response:
            status = response.status
        if needed == CONTROLLER or (needed != ANYBODY and role == ANYBODY):
            assert status == 401, role
        elif needed in PEOPLE and PEOPLE.index(role) < PEOPLE.index(needed):
            assert status == 403, role
        elif role != ANYBODY:
            assert status not in (401, 403), role


async def test_a_controller_key_opens_the_internal_routes_only(lcm: RunningLcm, keys: dict[str, str]) -> None:
    async with watched_session(lcm.url, headers={"X-API-Key": keys[CONTROLLER]}) as session:
        async with session.get("/api/internal/workers") as response:
            assert response.status == 200
        async with session.get("/api/workers") as response:
            assert response.status == 401
        async with session.post("/api/internal/workers/x/status", json={}) as response:
            assert response.status == 403
            assert "claim one first" in (await response.json())["detail"]


async def test_a_write_under_an_older_epoch_is_fenced(
    lcm: RunningLcm, keys: dict[str, str], api: Api
) -> None:
    worker = await api.create("fenced")
    headers = {"X-API-Key": keys[CONTROLLER], "X-LCM-Service": "worker-controller", "X-LCM-Epoch": "0"}
    async with watched_session(lcm.url, headers=headers) as session:
        body = {"ready": True, "version": "6.6.6"}
        async with session.post(f"/api/internal/workers/{worker['id']}/cml-data", json=body) as response:
            assert response.status == 409
            assert (await response.json())["type"] == "urn:lcm:problem:fenced"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_cannot_sign_a_browser_in(lcm: RunningLcm, api: Api, site: str) -> None:
    _, made = await api.call("POST", "/api/session/links")
    headers = {"Sec-Fetch-Site": site}
    async with watched_session(lcm.url) as browser:
        for link in (f"/?code={made['code']}", f"/?token={lcm.ready.token}"):
            async with browser.get(link, headers=headers, allow_redirects=False) as response:
                assert response.status == 403
                assert "Set-Cookie" not in response.headers
        async with browser.get(f"/?code={made['code']}", allow_redirects=False) as response:
            assert "Set-Cookie" in response.headers, "it was not used up"


async def test_a_wrong_token_signs_nobody_in(lcm: RunningLcm) -> None:
    async with watched_session(lcm.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get("/?token=guess", allow_redirects=False) as response:
            assert "Set-Cookie" not in response.headers
        async with browser.post("/api/session", json={"token": "guess"}) as response:
            assert response.status == 401


async def test_another_site_cannot_use_the_cookie(lcm: RunningLcm) -> None:
    async with signed_in(lcm) as browser:
        body = {"name": "forged", "template_name": "small"}
        for origin in ("https://evil.example", "null", f"{lcm.url}.evil.example", f"ftp{lcm.url[4:]}", ""):
            async with browser.post("/api/workers", json=body, headers={"Origin": origin}) as response:
                assert response.status == 403, origin
        for site in ("cross-site", "same-site", "none"):
            async with browser.post("/api/workers", json=body, headers={"Sec-Fetch-Site": site}) as response:
                assert response.status == 403, site
        async with browser.post("/api/workers", json=body) as response:
            assert response.status == 403, "a browser that says nothing about where it comes from"
        async with browser.delete("/api/session", headers={"Origin": "https://evil.example"}) as response:
            assert response.status == 403, "nor may it sign anybody out"


async def test_the_dashboard_itself_can_use_the_cookie(lcm: RunningLcm) -> None:
    async with signed_in(lcm) as browser:
        for headers in ({"Origin": lcm.url}, {"Sec-Fetch-Site": "same-origin"}):
            async with browser.post("/api/workers/nobody/start", headers=headers) as response:
                assert response.status == 404


async def test_whoever_signs_out_is_out_and_so_is_a_copy_of_the_cookie(lcm: RunningLcm) -> None:
    async with signed_in(lcm) as browser:
        copied = {cookie.key: cookie.value for cookie in browser.cookie_jar}
        async with browser.delete("/api/session", headers={"Origin": lcm.url}) as response:
            assert response.status == 204
        async with (
            watched_session(lcm.url, cookies=copied) as thief,
            thief.get("/api/session") as response,
        ):
            assert response.status == 401


@pytest.fixture(scope="module")
def strict_lcm() -> Iterator[RunningLcm]:
    """LCM behind a proxy on the same host, with a low rate per token."""
    with running_lcm("--workers", "0", API_REQUESTS_PER_SECOND="4", FORWARDED_ALLOW_IPS="127.0.0.1") as lcm:
        yield lcm


async def test_behind_tls_the_cookie_is_secure_and_bound_to_the_host(strict_lcm: RunningLcm) -> None:
    headers = {"X-Forwarded-Proto": "https", "Host": "lcm.example"}
    async with watched_session(strict_lcm.url, headers=headers) as browser:
        async with browser.post("/api/session", json={"token": strict_lcm.ready.token}) as response:
            cookie = response.headers["Set-Cookie"]
            assert cookie.startswith("__Host-lcm_session=")
            assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
            assert "max-age=31536000" in response.headers["Strict-Transport-Security"]
        ours = {"Cookie": cookie.partition(";")[0], "Origin": "https://lcm.example"}
        async with browser.post("/api/workers/nobody/start", headers=ours) as response:
            assert response.status == 404
        plain = {"Cookie": cookie.partition(";")[0], "Origin": "http://lcm.example"}
        async with browser.post("/api/workers/nobody/start", headers=plain) as response:
            assert response.status == 403


async def test_the_cookie_is_not_the_token(lcm: RunningLcm, keys: dict[str, str]) -> None:
    async with signed_in(lcm) as browser:
        values = [cookie.value for cookie in browser.cookie_jar]
        assert values
        assert not set(values) & set(keys.values())
    async with (
        watched_session(lcm.url, cookies={f"lcm_session_{urlsplit(lcm.url).port}": keys[ADMIN]}) as browser,
        browser.get("/api/session") as response,
    ):
        assert response.status == 401


async def status_of(browser: aiohttp.ClientSession, path: str) -> int:
    async with browser.get(path) as response:
        return response.status


async def test_a_token_is_shown_once_works_until_revoked_and_leaves_no_trace_in_the_list(
    lcm: RunningLcm, api: Api
) -> None:
    status, made = await api.call("POST", "/api/tokens", {"name": "pipeline", "role": "operator"})
    assert status == 201
    listed = await api.get("/api/tokens")
    assert [item["name"] for item in listed["items"]] == ["pipeline"]
    assert made["token"] not in json.dumps(listed)
    async with person(lcm.url, made["token"]) as bearer:
        assert (await bearer.get("/api/session")).items() >= {"actor": "pipeline", "role": "operator"}.items()
        assert (await bearer.call("POST", "/api/workers", small()))[0] == 403
        assert (await bearer.call("POST", "/api/tokens", {"name": "more", "role": "admin"}))[0] == 403
        listed = await api.get("/api/tokens")
        assert listed["items"][0]["last_used_at"] is not None
        async with signed_in(lcm, made["token"]) as browser:
            assert await status_of(browser, "/api/session") == 200
            assert (await api.call("DELETE", f"/api/tokens/{made['details']['id']}"))[0] == 204
            assert (await bearer.call("GET", "/api/session"))[0] == 401
            assert await status_of(browser, "/api/session") == 401, "its sessions end with it"
    assert (await api.get("/api/tokens"))["items"] == []


async def test_a_stream_ends_soon_after_its_token(lcm: RunningLcm, api: Api) -> None:
    _, made = await api.call("POST", "/api/tokens", {"name": "watcher", "role": "viewer"})
    async with person(lcm.url, made["token"]) as watcher, watcher.stream() as stream:
        assert (await stream.next())["event"] == "connected"
        assert (await api.call("DELETE", f"/api/tokens/{made['details']['id']}"))[0] == 204
        await stream.until("auth.session.expired")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"name": "admin", "role": "admin"}, "reserved for the keys"),
        ({"name": "", "role": "admin"}, "letters, digits"),
        ({"name": "x", "role": "root"}, "role"),
        ({"name": "x", "role": "viewer", "expires_in_seconds": 1}, "expires_in_seconds"),
        ({"name": "x", "role": "viewer", "token": "mine"}, "token: Extra inputs"),
    ],
)
async def test_a_token_nobody_should_have_is_refused(body: Any, says: str, api: Api) -> None:
    status, problem = await api.call("POST", "/api/tokens", body)
    assert status == 422
    assert says in problem["detail"]


async def test_a_tokens_name_can_be_had_once(api: Api) -> None:
    body = {"name": "only-one", "role": "viewer", "expires_in_seconds": 3600}
    status, made = await api.call("POST", "/api/tokens", body)
    assert status == 201
    assert (await api.call("POST", "/api/tokens", body))[0] == 409
    await api.call("DELETE", f"/api/tokens/{made['details']['id']}")
    assert (await api.call("POST", "/api/tokens", body))[0] == 201


async def test_who_guesses_tokens_is_slowed_down_and_who_knows_one_is_not(strict_lcm: RunningLcm) -> None:
    async with admin_of(strict_lcm) as api:
        _, made = await api.call("POST", "/api/tokens", {"name": "behind the proxy", "role": "viewer"})
    statuses = []
    async with watched_session(strict_lcm.url) as guesser:
        for number in range(80):
            async with guesser.get("/api/workers", headers={"Authorization": f"Bearer {number}"}) as response:
                statuses.append(response.status)
                if response.status == 429:
                    assert int(response.headers["Retry-After"]) >= 1
                    assert response.content_type == "application/problem+json"
    assert set(statuses) == {401, 429}
    async with person(strict_lcm.url, made["token"]) as api:
        assert (await api.call("GET", "/api/session"))[0] == 200


async def test_who_asks_too_often_is_told_when_to_come_back(strict_lcm: RunningLcm) -> None:
    async with person(strict_lcm.url, keys_of(strict_lcm)[VIEWER]) as api:
        statuses = []
        for _ in range(40):
            async with api.session.get("/api/session") as response:
                statuses.append(response.status)
        assert statuses[:15] == [200] * 15
        assert 429 in statuses
        async with api.session.get("/health") as response:
            assert response.status == 200


async def test_signing_in_is_charged_to_who_signs_in(strict_lcm: RunningLcm) -> None:
    body = {"token": keys_of(strict_lcm)[OPERATOR]}
    async with watched_session(strict_lcm.url) as browser:
        statuses = []
        for _ in range(40):
            async with browser.post("/api/session", json=body) as response:
                statuses.append(response.status)
        assert statuses[:15] == [200] * 15
        assert 429 in statuses


async def test_every_page_carries_the_strict_headers(lcm: RunningLcm) -> None:
    async with watched_session(lcm.url) as browser, browser.get("/") as response:
        assert response.status == 200
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "camera=()" in response.headers["Permissions-Policy"]
        assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert "Strict-Transport-Security" not in response.headers, "not over a plain connection"


def small(**changes: Any) -> dict[str, Any]:
    return {"name": "bad", "template_name": "small", **changes}


async def everybody(api: Api) -> list[str]:
    return [worker["id"] for worker in (await api.get("/api/workers?include_terminated=true"))["items"]]


@pytest.mark.parametrize(
    ("body", "status", "kind", "says"),
    [
        (small(template_name="huge"), 422, "unknown-reference", "choose one of: micro, small"),
        (small(aws_region="mars-north-1"), 422, "unknown-reference", "choose one of: eu-west-1, us-east-1"),
        ({"template_name": "small"}, 422, "invalid", "name: Field required"),
        ({"name": "bad"}, 422, "invalid", "template_name: Field required"),
        (small(name=5), 422, "invalid", "name: Input should be a valid string"),
        (small(name="Not A Name"), 422, "invalid", "lower-case letters, digits and hyphens"),
        (small(tags={"aws:x": "1"}), 422, "invalid", "reserved by AWS"),
        (small(status="running"), 422, "invalid", "status: Extra inputs are not permitted"),
        ([], 422, "invalid", "body"),
        ("{not json", 422, "invalid", "body"),
        (None, 422, "invalid", "body"),
    ],
)
async def test_a_bad_wish_gets_a_problem_that_says_what_to_do_and_changes_nothing(
    body: Any, status: int, kind: str, says: str, api: Api
) -> None:
    before = await everybody(api)
    data = body if isinstance(body, str) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    async with api.session.post("/api/workers", data=data, headers=headers) as response:
        problem = await response.json()
        assert response.status == status
        assert response.content_type == "application/problem+json"
    assert problem["type"] == f"urn:lcm:problem:{kind}"
    assert says in problem["detail"]
    assert await everybody(api) == before


async def test_an_unknown_worker_is_a_problem_that_says_where_to_look(api: Api) -> None:
    for method, path in (("GET", ""), ("POST", "/stop"), ("DELETE", ""), ("GET", "/timeline")):
        status, problem = await api.call(method, f"/api/workers/nobody{path}")
        assert status == 404
        assert "GET /api/workers" in problem["detail"]


async def test_an_illegal_action_names_the_possible_ones(api: Api) -> None:
    worker = await api.create("illegal")
    await api.act(worker, "delete")
    await api.until(worker, "terminated")
    before = await api.get(f"/api/workers/{worker['id']}")
    status, problem = await api.call("POST", f"/api/workers/{worker['id']}/start")
    assert (status, problem["type"]) == (409, "urn:lcm:problem:illegal-transition")
    assert "it is terminated" in problem["detail"]
    assert await api.get(f"/api/workers/{worker['id']}") == before


async def test_a_live_workers_name_cannot_be_taken_but_a_terminated_ones_can(api: Api) -> None:
    worker = await api.create("taken")
    status, problem = await api.call("POST", "/api/workers", small(name="taken"))
    assert (status, problem["type"]) == (409, "urn:lcm:problem:name-taken")
    await api.act(worker, "delete")
    await api.until(worker, "terminated")
    await api.create("taken")


async def test_the_same_key_and_request_make_one_worker_and_another_request_is_refused(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    first = await api.call("POST", "/api/workers", small(name="once"), headers=headers)
    again = await api.call("POST", "/api/workers", small(name="once"), headers=headers)
    assert (first[0], again[0]) == (202, 202)
    assert first[1]["id"] == again[1]["id"]
    status, problem = await api.call("POST", "/api/workers", small(name="twice"), headers=headers)
    assert (status, problem["type"]) == (422, "urn:lcm:problem:key-reused")


async def test_an_action_with_a_key_is_carried_out_once(api: Api) -> None:
    worker = await api.create("acted-on-once")
    path = f"/api/workers/{worker['id']}"
    headers = {"Idempotency-Key": "stop it"}
    assert (await api.call("POST", f"{path}/stop", headers=headers))[0] == 202
    started = await api.act(worker, "start")
    status, answer = await api.call("POST", f"{path}/stop", headers=headers)
    assert status == 202
    assert (answer["desired_status"], answer["generation"]) == ("running", started["generation"])
    status, problem = await api.call("POST", f"{path}/start", headers=headers)
    assert (status, problem["type"]) == (422, "urn:lcm:problem:key-reused")


async def test_an_action_on_a_version_that_is_gone_changes_nothing(api: Api) -> None:
    worker = await api.create("seen-before")
    path = f"/api/workers/{worker['id']}"
    await api.until(worker, "running", cml_ready=True)
    status = 412
    while status == 412:  # the controller may have something to report in between
        async with api.session.get(path) as response:
            seen = response.headers["ETag"]
        async with api.session.post(f"{path}/stop", headers={"If-Match": f'"0", {seen}'}) as response:
            status = response.status
            after = response.headers.get("ETag")
    assert status == 202
    assert after != seen
    for outdated in (seen, "W/" + seen, "nonsense"):
        status, problem = await api.call("DELETE", path, headers={"If-Match": outdated})
        assert (status, problem["type"]) == (412, "urn:lcm:problem:precondition-failed")
    assert (await api.get(path))["desired_status"] == "stopped"
    assert (await api.call("DELETE", path, headers={"If-Match": "*"}))[0] == 202


async def test_a_template_can_be_withdrawn_offered_and_deleted(api: Api) -> None:
    async with api.stream() as stream:
        await stream.until("connected")
        shipped = [template["name"] for template in (await api.get("/api/worker-templates"))["items"]]
        assert (await api.call("POST", "/api/worker-templates/large/disable"))[0] == 200
        told = await stream.until("worker.template.updated")
        assert (told["data"]["template"]["name"], told["data"]["template"]["enabled"]) == ("large", False)
        offered = await api.get("/api/worker-templates?enabled_only=true")
        assert [t["name"] for t in offered["items"]] == [name for name in shipped if name != "large"]
        status, problem = await api.call("POST", "/api/workers", small(template_name="large"))
        assert (status, problem["type"]) == (422, "urn:lcm:problem:unknown-reference")
        assert (await api.call("DELETE", "/api/worker-templates/large"))[0] == 204
        assert (await stream.until("worker.template.deleted"))["data"]["template"]["name"] == "large"
    await api.create("needs-its-template", "medium")
    status, problem = await api.call("DELETE", "/api/worker-templates/medium")
    assert status == 409
    assert "needs-its-template" in problem["detail"]


async def test_the_secret_key_can_be_rotated_while_running(lcm: RunningLcm, api: Api) -> None:
    path = Path(lcm.ready.data_dir) / "secret-keys.json"
    before = path.read_text()
    status, answer = await api.call("POST", "/api/secret-keys/rotate")
    assert (status, answer["resealed"]) == (200, 0)
    assert path.read_text() != before
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_body_over_a_megabyte_is_refused(api: Api) -> None:
    async with api.session.post("/api/workers", data=io.BytesIO(b"x" * (1024 * 1024 + 1))) as response:
        assert response.status == 413

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    async with api.session.post("/api/workers", data=endless()) as response:
        assert response.status == 413


async def test_a_long_list_comes_in_pages(api: Api) -> None:
    for number in range(5):
        await api.create(f"page-{number}")
    names: list[str] = []
    path = "/api/workers?limit=2"
    while path:
        page = await api.get(path)
        assert len(page["items"]) <= 2
        names += [worker["name"] for worker in page["items"]]
        path = f"/api/workers?limit=2&after={page['next']}" if page["next"] else ""
    assert names == sorted(names)
    assert {f"page-{number}" for number in range(5)} <= set(names)


async def test_no_answer_or_log_line_contains_a_key(lcm: RunningLcm, keys: dict[str, str], api: Api) -> None:
    await api.call("POST", "/api/workers", small(name="Wrong"))
    async with watched_session() as session:
        texts = [lcm.stderr()]
        for url in (f"{lcm.url}/metrics", f"{lcm.url}/health", f"{lcm.worker_controller_url}/info"):
            async with session.get(url) as response:
                texts.append(await response.text())
    texts.append(json.dumps(await api.get("/api/workers?include_terminated=true")))
    for text in texts:
        assert not [name for name, key in keys.items() if key in text]
