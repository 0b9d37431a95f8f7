"""A key for each service: bound to its name and its routes, and replaced without an outage."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr, ValidationError

import lcm.rest
from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.access.services import ROUTES_OF, Route, ServiceKeys
from lcm.control_plane.api import internal
from lcm.control_plane.main import assemble
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.rest.client import ControlPlaneClient
from lcm.rest.schemas import CONTROL_PLANE, LABLET_CONTROLLER, RESOURCE_SCHEDULER, WORKER_CONTROLLER
from support.asgi import request
from support.control_plane import ONE_REGION
from support.virtual_time import VirtualClock

ids = RandomIds(Random(1))

SHARED_KEY_ONLY = {
    ("GET", "/api/internal/worker-templates"),
    ("POST", "/api/internal/workers/{worker_id}/recalculate-capacity"),
    ("POST", "/api/internal/workers/{worker_id}/terminate"),
    ("POST", "/api/internal/workers/{worker_id}/trigger-lab-discovery"),
}
"""Routes of the contract that no service of LCM calls."""

KEYS = {service: f"{number}-the-key-of-the-{service}-alone" for number, service in enumerate(ROUTES_OF)}
SHARED = "the-key-that-all-services-share"
GENERATED = "the-key-of-the-data-directory"


def internal_routes() -> set[Route]:
    routes = [route for router in internal.ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {(method, route.path) for route in routes for method in route.methods or ()}


def app_with(services: ServiceKeys) -> FastAPI:
    clock, store = VirtualClock(), MemoryStore()
    return assemble(
        store,
        MemoryKv(clock, ids),
        AccessKeys("viewer-key", "operator-key", "admin-key", GENERATED),
        secrets=SecretStore(store, SecretBox.of(bytes(32))),
        policies=ONE_REGION,
        clock=clock,
        ids=ids,
        services=services,
    ).app


async def called(
    app: FastAPI, route: Route, key: str, service: str | None, body: object = None
) -> tuple[int, str]:
    headers = {"X-API-Key": key, "X-LCM-Epoch": "1", "Content-Type": "application/json"}
    if service is not None:
        headers["X-LCM-Service"] = service
    method, template = route
    path = re.sub(r"\{\w+\}", "x", template)
    status, answer = await request(app, method, path, headers, json.dumps(body).encode() if body else None)
    return status, answer.decode()


def own_keys() -> ServiceKeys:
    return ServiceKeys((), {service: (key,) for service, key in KEYS.items()})


def test_every_internal_route_says_which_services_need_it() -> None:
    listed = {route for routes in ROUTES_OF.values() for route in routes}
    assert listed | SHARED_KEY_ONLY == internal_routes()
    assert not listed & SHARED_KEY_ONLY


@pytest.mark.parametrize("service", ROUTES_OF)
async def test_the_key_of_a_service_opens_its_routes_and_no_other(service: str) -> None:
    app = app_with(own_keys())
    for route in sorted(internal_routes()):
        if route == ("GET", "/api/internal/peers/feed") and service == CONTROL_PLANE:
            continue  # it has no end; the two control planes of tests/integration/ha follow each other
        status, answer = await called(app, route, KEYS[service], service)
        is_refused = status == 403 and "does not open this route" in answer
        assert is_refused is (route not in ROUTES_OF[service]), (route, status, answer)
        assert status != 401, route


@pytest.mark.parametrize("service", ROUTES_OF)
async def test_the_key_of_a_service_is_refused_under_every_other_name(service: str) -> None:
    app = app_with(own_keys())
    for name in (*(set(ROUTES_OF) - {service}), "anybody", None):
        status, answer = await called(app, ("GET", "/api/internal/workers"), KEYS[service], name)
        assert status == 401, (name, answer)
        assert KEYS[service] not in answer


async def test_the_key_of_a_service_does_not_claim_the_lead_of_another() -> None:
    app, claim = app_with(own_keys()), ("POST", "/api/internal/leadership")
    body = {"service": WORKER_CONTROLLER, "cluster_id": "c", "revision": 1, "instance_id": "a"}
    status, answer = await called(app, claim, KEYS[RESOURCE_SCHEDULER], RESOURCE_SCHEDULER, body)
    assert (status, "cannot claim the lead" in answer) == (403, True)
    status, answer = await called(app, claim, KEYS[WORKER_CONTROLLER], WORKER_CONTROLLER, body)
    assert (status, json.loads(answer)["epoch"]) == (200, 1), "the refused claim has fenced nobody"


async def test_both_keys_of_a_rotation_are_valid_and_a_third_is_not() -> None:
    app = app_with(ServiceKeys((), {WORKER_CONTROLLER: ("newer-key", "older-key")}))
    route = ("GET", "/api/internal/workers")
    for key, status in (("newer-key", 200), ("older-key", 200), ("oldest-key", 401), ("", 401)):
        assert (await called(app, route, key, WORKER_CONTROLLER))[0] == status, key


async def test_the_shared_key_is_for_services_that_have_no_key_of_their_own() -> None:
    app = app_with(ServiceKeys((SHARED,), {WORKER_CONTROLLER: (KEYS[WORKER_CONTROLLER],)}))
    route = ("GET", "/api/internal/lablet-sessions")
    refused = (WORKER_CONTROLLER, "anybody", None)
    for service, status in ((LABLET_CONTROLLER, 200), *((name, 401) for name in refused)):
        assert (await called(app, route, SHARED, service))[0] == status, service


async def test_one_shared_key_opens_every_internal_route_as_before() -> None:
    app = app_with(ServiceKeys((SHARED,)))
    for service in (*ROUTES_OF, "anybody", None):
        assert (await called(app, ("GET", "/api/internal/workers"), SHARED, service))[0] == 200, service


def settings(**given: str) -> ControlPlaneSettings:
    return ControlPlaneSettings.model_validate({name: SecretStr(value) for name, value in given.items()})


@pytest.mark.parametrize(
    ("given", "opens"),
    [
        ({}, {GENERATED: True, SHARED: False}),
        ({"control_plane_api_key": "set"}, {GENERATED: False}),
        ({"worker_controller_api_key": "set"}, {GENERATED: False, "": False}),
    ],
)
def test_the_key_of_the_data_directory_opens_nothing_once_a_key_is_set(
    given: Mapping[str, str], opens: Mapping[str, bool]
) -> None:
    keys = settings(**dict.fromkeys(given, "0123456789abcdef0123456789abcdef")).service_keys(GENERATED)
    for key, is_open in opens.items():
        assert keys.opens(key, LABLET_CONTROLLER) is is_open


def test_an_empty_key_opens_nothing() -> None:
    for keys in (ServiceKeys(()), ServiceKeys(("",)), ServiceKeys((), {WORKER_CONTROLLER: ("",)})):
        assert not keys.opens("", WORKER_CONTROLLER)


def test_each_key_of_a_rotation_must_be_strong() -> None:
    strong = "0123456789abcdef0123456789abcdef"
    keys = settings(worker_controller_api_key=f"{strong}, {strong[::-1]}").service_keys(GENERATED)
    assert keys.own == {WORKER_CONTROLLER: (strong, strong[::-1])}
    with pytest.raises(ValidationError, match="shorter than 32"):
        settings(worker_controller_api_key=f"{strong},short")


def test_services_with_the_same_key_are_refused_without_repeating_it() -> None:
    key = "0123456789abcdef0123456789abcdef"
    with pytest.raises(ValidationError) as refused:
        settings(worker_controller_api_key=f"{key[::-1]},{key}", lablet_controller_api_key=key)
    assert "WORKER_CONTROLLER_API_KEY and LABLET_CONTROLLER_API_KEY have the same key" in str(refused.value)
    assert key not in str(refused.value)


async def test_a_controller_sends_the_first_of_its_keys() -> None:
    sent: list[str] = []

    class Wire:
        async def send(
            self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
        ) -> tuple[int, bytes]:
            sent.append(headers["X-API-Key"])
            return 200, b'{"items":[]}'

    for key in ("newer, older", "only", ""):
        await ControlPlaneClient(Wire(), key, WORKER_CONTROLLER, lambda: 1).list_resources()
    assert sent == ["newer", "only", ""]


# What the clients call, as their code has it.

CALLERS = {"_call": "", "_report": "POST /workers/*/", "_changed": "POST /lablet-sessions/*/"}


def calls_of(client: str, file: str) -> Iterator[str]:
    """`METHOD /path` of every call in a class; what is filled in is `*`."""
    text = (Path(lcm.rest.__path__[0]) / file).read_text()
    [found] = [one for one in ast.parse(text).body if isinstance(one, ast.ClassDef) and one.name == client]
    for node in ast.walk(found):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLERS:
            before = CALLERS[node.func.attr]
            method, path = node.args[:2]
            paths = [path.body, path.orelse] if isinstance(path, ast.IfExp) else [path]
            for one in map(template, paths):
                yield before + one if before else f"{template(method)} {one.partition('?')[0]}"


def template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    return "*"


@pytest.mark.parametrize(
    ("client", "file", "service"),
    [
        ("ControlPlaneClient", "client.py", WORKER_CONTROLLER),
        ("SchedulingClient", "scheduling_client.py", RESOURCE_SCHEDULER),
        ("LabletClient", "lablet_client.py", LABLET_CONTROLLER),
    ],
)
def test_a_service_may_use_every_route_that_its_client_calls(client: str, file: str, service: str) -> None:
    allowed = {f"{method} {path.removeprefix('/api/internal')}" for method, path in ROUTES_OF[service]}
    calls = set(calls_of(client, file)) - {"POST /workers/*/*", "POST /lablet-sessions/*/*"}
    assert len(calls) >= 9
    for call in calls:
        assert any(fnmatchcase(route, call) for route in allowed), call
