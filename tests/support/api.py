"""Clients: a person with a token, and a subscriber of the event stream."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from lcm.core.timeouts import timeout
from support.canaries import suite_canaries, watched_session
from support.patience import PATIENCE_SECONDS
from support.processes import RunningLcm, eventually

Json = Any


class Api:
    """The public API as a script would use it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def call(self, method: str, path: str, body: Json = None, **options: Any) -> tuple[int, Json]:
        """Status and decoded answer."""
        async with self.session.request(method, path, json=body, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def get(self, path: str) -> Json:
        status, answer = await self.call("GET", path)
        assert status == 200, answer
        return answer

    async def accepted(self, method: str, path: str, body: Json = None) -> Json:
        status, answer = await self.call(method, path, body)
        assert status == 202, answer
        return answer

    async def create(self, name: str, template: str = "small") -> Json:
        return await self.accepted("POST", "/api/workers", {"name": name, "template_name": template})

    async def act(self, worker: Json, action: str) -> Json:
        if action == "delete":
            return await self.accepted("DELETE", f"/api/workers/{worker['id']}")
        return await self.accepted("POST", f"/api/workers/{worker['id']}/{action}")

    async def until(self, worker: Json, status: str, **facts: Any) -> Json:
        async def is_there() -> Json:
            seen = await self.get(f"/api/workers/{worker['id']}")
            wanted = {"status": status, **facts}
            return seen if all(seen[name] == value for name, value in wanted.items()) else None

        return await eventually(is_there)

    async def statuses(self, worker: Json) -> list[str]:
        """Every status the timeline shows, in order, each once in a row."""
        timeline = await self.get(f"/api/workers/{worker['id']}/timeline")
        return [entry["to"] for entry in timeline["items"] if entry["from"] != entry["to"]]

    @asynccontextmanager
    async def stream(self, last_event_id: str | None = None) -> AsyncIterator["EventStream"]:
        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        async with self.session.get("/api/events/stream?batch=true", headers=headers) as response:
            assert response.status == 200
            yield EventStream(response.content)


class EventStream:
    """Server-sent events, one at a time."""

    def __init__(self, lines: aiohttp.StreamReader) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Json]:
        """The next event: `event`, `id` if it has one, and its decoded `data`."""
        event: dict[str, Json] = {}
        async with timeout(PATIENCE_SECONDS):
            while line := (await self._lines.readline()).decode().rstrip("\n"):
                suite_canaries.search("an event of the stream", line)
                name, _, value = line.partition(": ")
                event[name] = json.loads(value) if name == "data" else value
        return event

    async def until(self, event_type: str) -> dict[str, Json]:
        while (event := await self.next())["event"] != event_type:
            pass
        return event

    async def until_batch(self, event_type: str) -> dict[str, Json]:
        """The next batch of new events; one without an id is part of the snapshot."""
        while "id" not in (event := await self.until(f"{event_type}.batch")):
            pass
        return event


@asynccontextmanager
async def person(url: str, token: str | None) -> AsyncIterator[Api]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with watched_session(url, headers=headers) as session:
        yield Api(session)


@asynccontextmanager
async def admin_of(lcm: RunningLcm) -> AsyncIterator[Api]:
    async with person(lcm.url, lcm.ready.token) as api:
        yield api


class Console:
    """The simulator's control endpoint: inspect AWS, act in its console, inject faults."""

    def __init__(self, endpoint: str, session: aiohttp.ClientSession) -> None:
        self._url = f"{endpoint}/_lcm"
        self._session = session

    async def instances_of(self, worker: Json) -> list[Json]:
        async with self._session.get(f"{self._url}/instances") as response:
            instances = (await response.json())["instances"]
        return [i for i in instances if i["tags"].get("worker_id") == worker["id"]]

    async def calls(self, operation: str) -> list[Json]:
        async with self._session.get(f"{self._url}/calls") as response:
            calls = await response.json()
        return [call for call in calls if call["operation"] == operation]

    async def disturb(self, **fault: Any) -> None:
        async with self._session.post(f"{self._url}/faults", json=fault) as response:
            assert response.status < 300, await response.text()

    async def heal(self) -> None:
        async with self._session.delete(f"{self._url}/faults") as response:
            assert response.status < 300

    async def click(self, action: str, instance: Json) -> None:
        body = {"action": action, "region": instance["region"], "instance_id": instance["id"]}
        async with self._session.post(f"{self._url}/console", json=body) as response:
            assert response.status < 300, await response.text()


@asynccontextmanager
async def console_of(endpoint: str) -> AsyncIterator[Console]:
    async with aiohttp.ClientSession() as session:
        yield Console(endpoint, session)
