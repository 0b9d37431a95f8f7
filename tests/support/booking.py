"""What a person does to book a session of a lab."""

from pathlib import Path
from typing import Any, Final

import aiohttp

from support.api import Api, Json
from support.canaries import suite_canaries
from support.processes import eventually

TOPOLOGY: Final = Path(__file__).parents[1] / "fixtures" / "topologies" / "branch-office.yaml"


async def define(api: Api, name: str = "branch-office", **options: Any) -> Json:
    """A definition of a lab of a few nodes."""
    body = {"name": name, "lab_yaml": TOPOLOGY.read_text(), "options": options}
    status, definition = await api.call("POST", "/api/lablet-definitions", body)
    assert status == 201, definition
    return definition


async def license_worker(api: Api, aws_endpoint: str, worker: Json) -> Json:
    """Register the worker with the token of the simulated license server: without one CML starts no node."""
    async with aiohttp.ClientSession() as http, http.get(f"{aws_endpoint}/_lcm/simulation") as answer:
        token = (await answer.json())["license_token"]
    suite_canaries.know("license token", token)
    await api.accepted("POST", f"/api/workers/{worker['id']}/license", {"token": token})

    async def is_licensed() -> Json:
        found = await api.get(f"/api/workers/{worker['id']}")
        return found if found["license"]["status"] == "registered" else None

    return await eventually(is_licensed)


async def book(api: Api, definition: Json | None = None) -> Json:
    """A session as soon as possible."""
    definition = definition or await define(api)
    status, created = await api.call("POST", "/api/lablet-sessions", {"definition_id": definition["id"]})
    assert status == 201, created
    return created["session"]


async def placed(api: Api, session: Json) -> Json:
    """The session when a worker has its claim."""

    async def is_placed() -> Json:
        found = await api.get(f"/api/lablet-sessions/{session['id']}")
        return found if found["worker_id"] else None

    return await eventually(is_placed)


async def session_in(api: Api, session: Json, *statuses: str) -> Json:
    """The session when it has reached one of these statuses."""

    async def has_arrived() -> Json:
        found = await api.get(f"/api/lablet-sessions/{session['id']}")
        return found if found["status"] in statuses else None

    return await eventually(has_arrived)
