"""Default deny: every route, every role, and what bad input gets."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lcm.control_plane.app import openapi_document
from support.api import Api, person
from support.processes import RunningLcm

ANYBODY, VIEWER, OPERATOR, ADMIN, CONTROLLER = "anybody", "viewer", "operator", "admin", "controller"

ROUTES = {
    ("GET", "/api/workers"): VIEWER,
    ("POST", "/api/workers"): ADMIN,
    ("GET", "/api/workers/{worker_id}"): VIEWER,
    ("DELETE", "/api/workers/{worker_id}"): ADMIN,
    ("GET", "/api/workers/{worker_id}/timeline"): VIEWER,
    ("POST", "/api/workers/{worker_id}/start"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/stop"): OPERATOR,
    ("POST", "/api/workers/{worker_id}/retry"): OPERATOR,
    ("GET", "/api/worker-templates"): VIEWER,
    ("GET", "/api/regions"): VIEWER,
    ("GET", "/api/settings/discovery"): VIEWER,
    ("PATCH", "/api/settings/discovery"): ADMIN,
    ("GET", "/api/session"): VIEWER,
    ("POST", "/api/session"): ANYBODY,
    ("DELETE", "/api/session"): ANYBODY,
    ("GET", "/api/events/stream"): VIEWER,
    ("GET", "/api/internal/workers"): CONTROLLER,
    ("GET", "/api/internal/workers/{worker_id}"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/status"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/launch-plan"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/launch-void"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/ec2-details"): CONTROLLER,
    ("POST", "/api/internal/workers/{worker_id}/cml-data"): CONTROLLER,
    ("POST", "/api/internal/workers/bulk-import"): CONTROLLER,
    ("POST", "/api/internal/workers/cleanup"): CONTROLLER,
    ("GET", "/api/internal/settings/discovery"): CONTROLLER,
    ("GET", "/api/internal/worker-templates/by-name/{name}"): CONTROLLER,
    ("POST", "/api/internal/leadership"): CONTROLLER,
    ("GET", "/health"): ANYBODY,
    ("GET", "/ready"): ANYBODY,
}
PEOPLE = (VIEWER, OPERATOR, ADMIN)


@pytest.fixture
def keys(lcm: RunningLcm) -> dict[str, str]:
    stored: dict[str, str] = json.loads((Path(lcm.ready.data_dir) / "keys.json").read_text())
    return stored


@pytest.fixture
async def people(lcm: RunningLcm, keys: dict[str, str]) -> AsyncIterator[dict[str, Api]]:
    async with AsyncExitStack() as stack:
        yield {
            role: await stack.enter_async_context(person(lcm.url, keys.get(role)))
            for role in (ANYBODY, *PEOPLE)
        }


def test_every_route_says_who_may_use_it() -> None:
    documented = {
        (method.upper(), path)
        for path, operations in openapi_document()["paths"].items()
        for method in operations
    }
    assert documented == set(ROUTES)


@pytest.mark.parametrize(("route", "needed"), ROUTES.items(), ids=[" ".join(route) for route in ROUTES])
async def test_a_route_lets_in_whom_it_should_and_nobody_else(
    route: tuple[str, str], needed: str, people: dict[str, Api]
) -> None:
    method, template = route
    path = template.format(worker_id="no-such-worker", name="no-such-template")
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
    async with aiohttp.ClientSession(lcm.url, headers={"X-API-Key": keys[CONTROLLER]}) as session:
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
    async with aiohttp.ClientSession(lcm.url, headers=headers) as session:
        body = {"ready": True, "version": "6.6.6"}
        async with session.post(f"/api/internal/workers/{worker['id']}/cml-data", json=body) as response:
            assert response.status == 409
            assert (await response.json())["type"] == "urn:lcm:problem:fenced"


async def test_the_link_printed_at_start_signs_a_browser_in(lcm: RunningLcm) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(lcm.ready.url, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/")
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
        async with browser.get(f"{lcm.url}/api/session") as response:
            assert await response.json() == {"actor": "admin", "role": "admin"}


async def test_a_wrong_token_signs_nobody_in(lcm: RunningLcm) -> None:
    async with aiohttp.ClientSession(lcm.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get("/?token=guess", allow_redirects=False) as response:
            assert "Set-Cookie" not in response.headers
        async with browser.post("/api/session", json={"token": "guess"}) as response:
            assert response.status == 401


async def test_another_site_cannot_use_the_cookie(lcm: RunningLcm) -> None:
    cookies = {"lcm_session": lcm.ready.token}
    async with aiohttp.ClientSession(lcm.url, cookies=cookies) as browser:
        body = {"name": "forged", "template_name": "small"}
        headers = {"Origin": "https://evil.example"}
        async with browser.post("/api/workers", json=body, headers=headers) as response:
            assert response.status == 403


async def test_every_page_carries_the_strict_headers(lcm: RunningLcm) -> None:
    async with aiohttp.ClientSession(lcm.url) as browser, browser.get("/") as response:
        assert response.status == 200
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"


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
    assert "gone for good" in problem["detail"]
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
    async with aiohttp.ClientSession() as session:
        texts = [lcm.complaints()]
        for url in (f"{lcm.url}/metrics", f"{lcm.url}/health", f"{lcm.worker_controller_url}/info"):
            async with session.get(url) as response:
                texts.append(await response.text())
    texts.append(json.dumps(await api.get("/api/workers?include_terminated=true")))
    for text in texts:
        assert not [name for name, key in keys.items() if key in text]
