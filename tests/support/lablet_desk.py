"""Sessions of a control plane without controllers: the test acts as scheduler and as lablet controller."""

import base64
from dataclasses import dataclass
from typing import Any

from lcm.core.clock import SystemClock
from lcm.domain.lablet.evidence import pack
from support.lone_plane import LonePlane
from support.processes import eventually

Json = dict[str, Any]

SCHEDULER = "resource-scheduler"
LABLET_CONTROLLER = "lablet-controller"

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
    """What a person requests of definitions and sessions, and what the controllers that lead report."""

    plane: LonePlane

    async def start(self) -> "LabletDesk":
        """Become the scheduler and the lablet controller that lead."""
        for service in (SCHEDULER, LABLET_CONTROLLER):
            claim = {"service": service, "cluster_id": "c", "revision": 1, "instance_id": "a"}
            await self._report("/leadership", claim, service)
        return self

    async def define(self, name: str = "basics", lab_yaml: str = LAB, **options: Any) -> Json:
        body = {"name": name, "lab_yaml": lab_yaml, "options": options}
        return await self._created("/api/lablet-definitions", body)

    async def give_login(self, definition: Json, password: str) -> None:
        """The nodes of its labs have this login."""
        login = {"username": "cisco", "password": password}
        path = f"/api/lablet-definitions/{definition['id']}/access"
        status, answer = await self.plane.admin.call("PUT", path, login)
        assert status == 200, answer

    async def create(self, definition: Json, **body: Any) -> Json:
        created = await self._created("/api/lablet-sessions", {"definition_id": definition["id"], **body})
        session: Json = created["session"]
        return session

    async def create_class(self, definition: Json, *owners: str, **fields: Any) -> Json:
        """A class with a seat for each owner."""
        seats = {"count": len(owners), "owners": owners}
        body = {"definition_id": definition["id"], "name": "CCNA", **seats, **fields}
        created = await self._created("/api/lablet-sessions/batch", body)
        batch: Json = created["batch"]
        return batch

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

    # What the worker controller and the lablet controller report.

    async def give_address(self, host: str) -> None:
        """The worker that runs is reached here."""
        worker = await self.plane.admin.get(f"/api/workers/{self.plane.worker_id}")
        instance = {
            "id": "i-1",
            "region": "us-east-1",
            "state": "running",
            "instance_type": "m5zn.metal",
            "image_id": "ami-1",
            "public_ip": host,
        }
        report = {"instance": instance, "expected_version": worker["version"]}
        await self.plane.accepted("/{id}/ec2-details", report)

    async def import_lab(self, session: Json) -> None:
        """Begin to instantiate a placed session, and import its lab."""
        await self.move(session, "instantiating")
        intent = {"attempt": 1, "generation": 1}
        path = f"/lablet-sessions/{session['id']}"
        await self._report(f"{path}/lab-intent", intent, LABLET_CONTROLLER)
        await self._report(f"{path}/lab", {"generation": 1, "lab_id": "lab-1"}, LABLET_CONTROLLER)

    async def report_progress(self, session: Json, **progress: Any) -> None:
        """Steps, nodes or clean-up of the lab that was imported."""
        item = {"session_id": session["id"], "attempt": 1, "generation": 1, **progress}
        answer = await self._report("/lablet-sessions/progress", {"items": [item]}, LABLET_CONTROLLER)
        assert answer["ignored"] == []

    async def boot(self, session: Json) -> None:
        """Place the session, import its lab and boot it."""
        await self.place(session)
        await self.import_lab(session)
        await self.report_progress(session, nodes={"pc1": "BOOTED"})
        await self.move(session, "ready")

    async def run(self, session: Json) -> None:
        """The same, and the session begins."""
        await self.boot(session)
        await self.move(session, "running")

    async def keep_evidence(self, session: Json, text: str) -> None:
        """What was collected of the lab that was imported."""
        packed = base64.b64encode(pack(text)).decode()
        report = {"attempt": 1, "generation": 1, "packed": packed}
        await self._report(f"/lablet-sessions/{session['id']}/evidence", report, LABLET_CONTROLLER)

    async def move(self, session: Json, target: str) -> None:
        """The lablet controller decides the next status."""
        current = await self.get(session)
        move = {
            "from": current["status"],
            "to": target,
            "reason": "test",
            "generation": current["generation"],
        }
        await self._report(f"/lablet-sessions/{session['id']}/status", move, LABLET_CONTROLLER)

    async def list_labs(self, *labs: Json) -> None:
        """A discovery shows every lab of the worker that runs."""
        nodes = [{"id": "n0", "label": "r1", "state": "BOOTED"}]
        listed = [
            {"state": "STARTED", "owner": "ada", "node_count": 1, "contents": {"nodes": nodes}, **lab}
            for lab in labs
        ]
        taken_at = SystemClock().now().isoformat()
        report = {"instance_id": "i-1", "taken_at": taken_at, "is_full": True, "labs": listed}
        await self._report(f"/workers/{self.plane.worker_id}/labs", report, LABLET_CONTROLLER)

    async def fleet_id(self) -> str:
        """The id in the markers of this fleet's labs."""
        _, answer = await self.plane.reported("GET", "/fleet-identity")
        fleet_id: str = answer["fleet_id"]
        return fleet_id

    async def warn_of_end(self, session: Json) -> None:
        """The scheduler asks for what is due until the session is warned of its end."""

        async def is_warned() -> bool:
            await self._report("/lablet-sessions/move-windows", None)
            return (await self.get(session))["ending_soon_minutes"] is not None

        await eventually(is_warned)

    async def _created(self, path: str, body: Json) -> Json:
        status, answer = await self.plane.admin.call("POST", path, body)
        assert status in (201, 202), answer
        created: Json = answer
        return created

    async def _report(self, path: str, body: Json | None, service: str = SCHEDULER) -> Any:
        headers = {"X-LCM-Epoch": "1", "X-LCM-Service": service}
        async with self.plane.controller.post(f"/api/internal{path}", json=body, headers=headers) as response:
            assert response.status in (200, 202, 204), await response.text()
            return await response.json(content_type=None) if response.status != 204 else None
