"""A control plane without controllers: the test acts as the controller, and reports anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from lcm.control_plane.main import control_plane_process
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.clock import SystemClock
from lcm.core.hosted_service import HostedService, run_services
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.rest.documents import fetch_document
from support.api import Api, person
from support.canaries import suite_canaries, watched_session
from support.fleet import REGION, TEMPLATES

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class LonePlane:
    """A control plane, an administrator, a controller, and a worker that runs."""

    url: str
    token: str
    admin: Api
    controller: aiohttp.ClientSession
    worker_id: str
    kv: MemoryKv

    async def report(self, path: str, body: Any, epoch: int = 1) -> tuple[int, Any]:
        headers = {"X-LCM-Epoch": str(epoch)}
        url = f"/api/internal/workers{path.format(id=self.worker_id)}"
        async with self.controller.post(url, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def reported(self, method: str, path: str, body: Any = None, epoch: int = 1) -> tuple[int, Any]:
        """What a controller that leads gets, on any internal route."""
        headers = {"X-LCM-Epoch": str(epoch)}
        async with self.controller.request(
            method, f"/api/internal{path}", json=body, headers=headers
        ) as response:
            return response.status, await response.json(content_type=None)

    async def accepted(self, path: str, body: Any = None) -> Any:
        status, answer = await self.report(path, body)
        assert status in (200, 202), answer
        return answer

    async def add_running(self, name: str) -> str:
        """One more worker that runs."""
        worker_id: str = (await self.admin.create(name))["id"]
        for version, status in enumerate(("provisioning", "starting", "running"), start=1):
            report = {"status": status, "reason": "test", "expected_version": version}
            await self.accepted(f"/{worker_id}/status", report)
        return worker_id

    def sample(self, seconds: float = 0, *, since: datetime = T0, **values: Any) -> dict[str, Any]:
        at = (since + timedelta(seconds=seconds)).isoformat()
        return {"worker_id": self.worker_id, "collected_at": at, "source": "websocket", **values}


@asynccontextmanager
async def lone_plane(data_dir: Path) -> AsyncIterator[LonePlane]:
    clock, ids = SystemClock(), RandomIds()
    kv = MemoryKv(clock, ids)
    settings = ControlPlaneSettings(port=0, data_dir=data_dir, worker_templates_config_path=TEMPLATES)
    async with (
        control_plane_process(settings, kv, clock, ids, {"us-east-1": REGION}, fetch_document) as process,
        _running(kv, *process.services),
        person(process.url, process.keys.admin) as admin,
        watched_session(
            process.url,
            headers={"X-API-Key": process.keys.controller, "X-LCM-Service": "worker-controller"},
        ) as controller,
    ):
        claim = {"service": "worker-controller", "cluster_id": "c", "revision": 1, "instance_id": "a"}
        async with controller.post("/api/internal/leadership", json=claim) as response:
            assert (await response.json())["epoch"] == 1
        plane = LonePlane(process.url, process.keys.admin, admin, controller, "", kv)
        plane.worker_id = await plane.add_running("live")
        yield plane
        for item in (await kv.list_prefix("/")).items:
            suite_canaries.search(f"the key {item.key}", item.value)
        suite_canaries.search_data_dir(data_dir)


@asynccontextmanager
async def _running(*services: HostedService) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run_services(*services))
        yield
        task.cancel()
