"""With a key for each service everything works, and no service asks for what its key does not open."""

import re

import aiohttp

from support.api import Json, admin_of
from support.booking import book, license_worker, session_in
from support.lablet_desk import LAB
from support.processes import RunningLcm, eventually, running_lcm

KEYS = {
    "WORKER_CONTROLLER_API_KEY": "the-worker-controllers-own-key-0123456789",
    "RESOURCE_SCHEDULER_API_KEY": "the-resource-schedulers-own-key-0123456789",
    "LABLET_CONTROLLER_API_KEY": "the-lablet-controllers-own-key-0123456789",
}


async def refused(http: aiohttp.ClientSession, lcm: RunningLcm) -> list[str]:
    """The statuses of requests that were refused."""
    async with http.get(f"{lcm.url}/metrics") as response:
        return re.findall(r'^lcm_access_refused_total\{.*status="(\d+)"', await response.text(), re.MULTILINE)


async def test_a_lab_runs_and_is_removed_with_a_key_for_each_service() -> None:
    with running_lcm("--workers", "1", **KEYS) as lcm:
        async with admin_of(lcm) as api, aiohttp.ClientSession() as http:

            async def the_worker_is_ready() -> Json:
                [worker] = (await api.get("/api/workers"))["items"]
                return worker if worker["status"] == "running" and worker["cml_ready"] else None

            assert lcm.ready.aws_endpoint is not None
            worker = await license_worker(api, lcm.ready.aws_endpoint, await eventually(the_worker_is_ready))
            status, definition = await api.call(
                "POST", "/api/lablet-definitions", {"name": "basics", "lab_yaml": LAB}
            )
            assert status == 201, definition
            session = await session_in(api, await book(api, definition), "running")
            await api.accepted("POST", f"/api/lablet-sessions/{session['id']}/end")
            await session_in(api, session, "terminated", "archived")
            await api.accepted("POST", f"/api/workers/{worker['id']}/stop")

            async def the_worker_is_stopped() -> bool:
                return bool((await api.get(f"/api/workers/{worker['id']}"))["status"] == "stopped")

            await eventually(the_worker_is_stopped)
            assert await refused(http, lcm) == []
            for own in KEYS.values():
                headers = {"X-API-Key": own, "X-LCM-Service": "control-plane"}
                async with http.get(f"{lcm.url}/api/internal/peers/feed", headers=headers) as response:
                    assert response.status == 401

            async def a_refusal_is_counted() -> bool:
                return await refused(http, lcm) == ["401"]

            await eventually(a_refusal_is_counted)  # metrics are rendered once a second
