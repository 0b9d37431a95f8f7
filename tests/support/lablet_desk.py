"""Definitions and sessions of a control plane without controllers: the test acts as the scheduler."""

from dataclasses import dataclass
from typing import Any

from support.lone_plane import LonePlane

Json = dict[str, Any]

LAB = """\
lab:
  title: Basics
  version: 0.3.0
nodes:
  - id: n0
    label: pc1
    node_definition: alpine
    tags: ["serial:5001"]
    x: 0
    y: 0
    interfaces: []
links: []
"""
"""One node, which the smallest worker can run."""


@dataclass
class LabletDesk:
    """What a person requests of definitions and sessions, and what a scheduler that leads reports."""

    plane: LonePlane

    async def start(self) -> "LabletDesk":
        """Become the scheduler that leads."""
        claim = {"service": "resource-scheduler", "cluster_id": "c", "revision": 1, "instance_id": "a"}
        await self._report("/leadership", claim)
        return self

    async def define(self, name: str = "basics", **options: Any) -> Json:
        body = {"name": name, "lab_yaml": LAB, "options": options}
        return await self._created("/api/lablet-definitions", body)

    async def create(self, definition: Json, **body: Any) -> Json:
        created = await self._created("/api/lablet-sessions", {"definition_id": definition["id"], **body})
        session: Json = created["session"]
        return session

    async def get(self, session: Json) -> Json:
        found: Json = await self.plane.admin.get(f"/api/lablet-sessions/{session['id']}")
        return found

    async def end(self, session: Json) -> None:
        await self.plane.admin.accepted("POST", f"/api/lablet-sessions/{session['id']}/end")

    async def report_waiting(self, session: Json, text: str, code: str = "no_room") -> None:
        item = {"session_id": session["id"], "code": code, "text": text}
        await self._report("/lablet-sessions/waiting", {"items": [item]})

    async def place(self, session: Json) -> None:
        """Place the session on the worker that runs."""
        await self.plane.accepted("/{id}/cml-data", {"ready": True, "version": "2.9.0"})
        order = {"session_id": session["id"], "worker_id": self.plane.worker_id, "attempt": 1}
        answer = await self._report("/lablet-sessions/schedule", {"orders": [order]})
        assert [result["outcome"] for result in answer["results"]] == ["scheduled"], answer

    async def _created(self, path: str, body: Json) -> Json:
        status, answer = await self.plane.admin.call("POST", path, body)
        assert status in (201, 202), answer
        created: Json = answer
        return created

    async def _report(self, path: str, body: Json) -> Any:
        headers = {"X-LCM-Epoch": "1", "X-LCM-Service": "resource-scheduler"}
        async with self.plane.controller.post(f"/api/internal{path}", json=body, headers=headers) as response:
            assert response.status in (200, 202, 204), await response.text()
            return await response.json(content_type=None) if response.status != 204 else None
