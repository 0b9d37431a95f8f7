"""`lcm up` runs sessions: a person defines a lab, books a session, uses its lab, and ends it."""

import hashlib

import aiohttp
import yaml

from support.api import Api, Json, admin_of
from support.booking import book, define, license_worker, placed, session_in
from support.processes import eventually, running_lcm


async def ready_worker(api: Api) -> Json:
    async def the_worker_is_ready() -> Json:
        [worker] = (await api.get("/api/workers"))["items"]
        return worker if worker["status"] == "running" and worker["cml_ready"] else None

    return await eventually(the_worker_is_ready)


async def test_a_session_is_placed_on_the_running_worker_of_the_demonstration() -> None:
    with running_lcm("--workers", "1") as lcm:
        async with admin_of(lcm) as api, aiohttp.ClientSession() as http:
            definition = await define(api)
            worker = await ready_worker(api)
            assert lcm.ready.aws_endpoint is not None
            await license_worker(api, lcm.ready.aws_endpoint, worker)
            session = await placed(api, await book(api, definition))
            assert session["worker_id"] == worker["id"]
            url = f"http://127.0.0.1:{lcm.ready.ports['resource_scheduler']}"

            async def nothing_is_pending() -> bool:
                async with http.get(f"{url}/health") as answer:
                    health = await answer.json()
                return (health["is_leader"], health["pending_instances"]) == (True, 0)

            await eventually(nothing_is_pending)  # its next cycle finds the session placed
            async with http.get(f"{url}/metrics") as answer:
                assert "lcm_scheduler_successes_total 1.0" in await answer.text()


async def test_a_session_gets_its_lab_on_the_worker_and_leaves_none_behind() -> None:
    with running_lcm("--workers", "1") as lcm:
        async with admin_of(lcm) as api, aiohttp.ClientSession() as http:
            definition = await define(api)
            worker = await ready_worker(api)
            endpoint = lcm.ready.aws_endpoint
            assert endpoint is not None

            async def labs_on_cml() -> list[Json]:
                url = f"{endpoint}/_lcm/cml/workers/{worker['ec2_instance_id']}"
                async with http.get(url) as answer:
                    return [lab for lab in (await answer.json())["labs"] if lab["title"].startswith("lcm-")]

            await license_worker(api, endpoint, worker)
            session = await session_in(api, await book(api, definition), "running")
            [lab] = await labs_on_cml()
            assert (session["worker_id"], session["lab"]["lab_id"]) == (worker["id"], lab["lab_id"])
            assert set(lab["nodes"].values()) == {"BOOTED"}
            url = f"http://127.0.0.1:{lcm.ready.ports['lablet_controller']}"

            async def one_is_running() -> bool:
                async with http.get(f"{url}/health") as answer:
                    health = await answer.json()
                return (health["instances_managed"], health["instances_running"]) == (1, 1)

            await eventually(one_is_running)  # the record runs before the answer is back

            await api.accepted("POST", f"/api/lablet-sessions/{session['id']}/end")
            await session_in(api, session, "terminated")
            assert await labs_on_cml() == []
            assert (await api.get(f"/api/workers/{worker['id']}"))["sessions"] == []


async def test_what_a_lab_held_is_kept_when_its_session_ends() -> None:
    with running_lcm("--workers", "1") as lcm:
        async with admin_of(lcm) as api:
            definition = await define(api, collect="configs")
            worker = await ready_worker(api)
            assert lcm.ready.aws_endpoint is not None
            await license_worker(api, lcm.ready.aws_endpoint, worker)
            session = await session_in(api, await book(api, definition), "running")
            await api.accepted("POST", f"/api/lablet-sessions/{session['id']}/end")
            session = await session_in(api, session, "terminated")
            [kept] = session["evidence"]
            path = f"/api/lablet-sessions/{session['id']}/evidence/{kept['n']}"
            async with api.session.get(path) as answer:
                file = await answer.read()
                assert answer.headers["Cache-Control"] == "no-store"
            assert (kept["kind"], kept["bytes"]) == ("configs", len(file))
            assert kept["sha256"] == hashlib.sha256(file).hexdigest()
            labels = {node["label"] for node in yaml.safe_load(file)["nodes"]}
            assert labels == set(session["nodes"])
