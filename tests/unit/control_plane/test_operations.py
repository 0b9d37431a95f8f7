"""A control plane answers probes, facts and metrics as controllers do: on virtual time, without a socket."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import ControlPlaneParts, assemble
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from support.asgi import request
from support.control_plane import ONE_REGION
from support.core import Link, running
from support.virtual_time import VirtualClock

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")
VIEWER = {"Authorization": f"Bearer {KEYS.viewer}"}


class Plane:
    """An assembled control plane whose link to the coordination store can be cut."""

    def __init__(self) -> None:
        self.clock, ids = VirtualClock(), RandomIds(Random(1))
        self.link = Link(MemoryKv(self.clock, ids), self.clock)
        store = MemoryStore()
        self.parts: ControlPlaneParts = assemble(
            store,
            self.link,
            KEYS,
            clock=self.clock,
            ids=ids,
            policies=ONE_REGION,
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
        )

    async def ask(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        status, body = await request(self.parts.app, "GET", path, headers or {}, None)
        return status, json.loads(body)


async def test_a_control_plane_is_ready_once_everything_is_published() -> None:
    plane = Plane()
    assert await plane.ask("/ready") == (503, {"ready": False, "frozen": []})
    async with running(plane.parts.publisher):
        await plane.clock.sleep(1)
        assert await plane.ask("/ready") == (200, {"ready": True, "frozen": []})


async def test_a_control_plane_without_coordination_store_is_healthy_and_names_what_is_missing() -> None:
    plane = Plane()
    plane.link.cut()
    async with running(plane.parts.publisher):
        await plane.clock.sleep(1)
        status, health = await plane.ask("/health")
        assert (status, health["status"], health["silent_loops"]) == (200, "healthy", [])
        assert [reason.partition(":")[0] for reason in health["frozen"]] == ["coordination store"]
        status, ready = await plane.ask("/ready")
        assert (status, ready["ready"], ready["frozen"]) == (503, False, health["frozen"])


async def test_a_control_plane_with_a_silent_loop_is_not_healthy() -> None:
    plane = Plane()
    async with running(plane.parts.publisher):
        await plane.clock.sleep(1)
    await plane.clock.sleep(60)
    assert await plane.ask("/health") == (
        503,
        {"status": "unhealthy", "frozen": [], "silent_loops": ["publisher"]},
    )


async def test_a_control_plane_states_its_version_to_people_with_a_token_only() -> None:
    plane = Plane()
    assert (await plane.ask("/info"))[0] == 401
    status, info = await plane.ask("/info", VIEWER)
    assert (status, info["service"], sorted(info)) == (200, "control-plane", ["service", "version"])
