"""People reach the nodes of their session over real sockets: CML over TLS, and the ports that PATty opens."""

import asyncio
from contextlib import closing
from urllib.parse import urlsplit

import aiohttp

from lcm.core.timeouts import timeout
from support.api import Api, Json, admin_of
from support.booking import book, license_worker, session_in
from support.lablet_desk import LAB
from support.patience import PATIENCE_SECONDS
from support.processes import RunningLcm, eventually, running_lcm

LOGIN = {"username": "cisco", "password": "a-canary-of-the-nodes"}


async def define_with_login(api: Api) -> Json:
    body = {"name": "basics", "lab_yaml": LAB, "access": LOGIN}
    status, definition = await api.call("POST", "/api/lablet-definitions", body)
    assert (status, definition["has_access_login"]) == (201, True)
    return definition


async def licensed_worker(lcm: RunningLcm, api: Api) -> Json:
    async def the_worker_is_ready() -> Json:
        [worker] = (await api.get("/api/workers"))["items"]
        return worker if worker["status"] == "running" and worker["cml_ready"] else None

    assert lcm.ready.aws_endpoint is not None
    return await license_worker(api, lcm.ready.aws_endpoint, await eventually(the_worker_is_ready))


async def test_a_person_reaches_the_console_of_a_node_at_the_address_of_the_access() -> None:
    with running_lcm("--workers", "1") as lcm:
        async with admin_of(lcm) as api, aiohttp.ClientSession() as http:
            worker = await licensed_worker(lcm, api)
            booked = await book(api, await define_with_login(api))
            session = await session_in(api, booked, "running")
            assert session["steps"]["probe"]["status"] == "completed"
            access = await api.get(f"/api/lablet-sessions/{session['id']}/access")
            [port] = access["ports"]
            assert (port["host"], port["is_reachable"]) == (worker["public_ip"], True)
            assert {name: port[name] for name in LOGIN} == LOGIN
            place = urlsplit(port["uri"])
            async with timeout(PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection(place.hostname, place.port)
                with closing(writer):
                    assert "pc1" in (await reader.readuntil(b"\r\n")).decode()
            cml = urlsplit(access["lab_url"])
            async with http.get(f"https://{cml.netloc}/api/v0/system_information", ssl=False) as answer:
                assert (await answer.json())["ready"] is True
            assert cml.path == f"/lab/{session['lab']['lab_id']}"


async def test_a_worker_with_patty_off_is_named_until_it_is_set_up() -> None:
    with running_lcm("--workers", "1") as lcm:
        async with admin_of(lcm) as api, aiohttp.ClientSession() as http:
            await licensed_worker(lcm, api)

            async def switch_patty(*, is_on: bool) -> None:
                url = f"{lcm.ready.aws_endpoint}/_lcm/cml/workers"
                async with http.patch(url, json={"patty": is_on}) as answer:
                    assert answer.status == 204

            await switch_patty(is_on=False)
            booked = await book(api, await define_with_login(api))

            async def is_named() -> bool:
                found = await api.get(f"/api/lablet-sessions/{booked['id']}")
                probe = found["steps"].get("probe", {})
                return "PATty is off on this worker" in probe.get("detail", "")

            await eventually(is_named)
            await switch_patty(is_on=True)
            session = await session_in(api, booked, "running")
            assert session["steps"]["probe"]["status"] == "completed"
            assert session["steps"]["probe"]["attempts"] > 1
