"""The keys of sessions and ports in the coordination store: what they hold, and whom they wake."""

import json
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.commands.lablets.archive_sessions import Archive
from lcm.control_plane.commands.lablets.end_session import end_session
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.session import create_session
from lcm.domain.lablet.states import SCHEDULED, EndReason
from support.scheduling import NEEDS, Classroom
from unit.domain.lablet.test_definition import define

SSH = PortSpec(name="r1_ssh", node="r1", kind=PortKind.PAT, protocol="tcp", inside=22)


async def key(room: Classroom, path: str) -> Any:
    item = await room.kv.get(f"/lcm/{path}")
    return None if item is None else json.loads(item.value)


async def add_session_with_a_port(room: Classroom, session_id: str) -> None:
    session = create_session(define(), session_id=session_id, owner_id="ann", now=room.clock.now())
    await room.plane.records.sessions.add(replace(session, demand=Demand(needs=NEEDS, ports=(SSH,))))


async def end(room: Classroom, session_id: str) -> None:
    await end_session(room.plane.records, session_id, EndReason.CANCELLED, by="ann", reason="ended by ann")


async def test_a_sessions_status_and_what_is_wanted_of_it_are_keys_until_an_hour_after_its_end() -> None:
    async with Classroom().running() as room:
        await room.add_session("s1")
        await room.clock.sleep(0.001)
        assert await key(room, "instances/s1/state") == {"status": "pending_scheduling", "generation": 1}
        assert await key(room, "instances/s1/desired_state") == {"desired_status": "running", "generation": 1}
        await end(room, "s1")
        await room.clock.sleep(1)
        assert (await key(room, "instances/s1/state"))["status"] == "terminated"
        assert (await key(room, "instances/s1/desired_state"))["desired_status"] == "terminated"
        archive = Archive(room.plane.records)
        await room.clock.sleep(3500)
        await archive.run_pass()
        assert await key(room, "instances/s1/state") is not None
        await room.clock.sleep(100)
        await archive.run_pass()
        await room.clock.sleep(1)
        assert (await room.kv.list_prefix("/lcm/instances/")).items == []


async def test_the_ports_of_a_worker_are_a_key_that_names_the_session_of_each() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        assert await key(room, "workers/w1/ports") is None
        await add_session_with_a_port(room, "s1")
        await add_session_with_a_port(room, "s2")
        await room.clock.sleep(1)
        assert await key(room, "workers/w1/ports") == {"s1": {"r1_ssh": 2000}, "s2": {"r1_ssh": 2001}}
        await end(room, "s1")
        await room.clock.sleep(1)
        assert await key(room, "workers/w1/ports") == {"s2": {"r1_ssh": 2001}}


async def test_the_scheduler_is_woken_by_sessions_that_wait_and_by_no_others() -> None:
    async with Classroom().running() as room:
        await room.add_worker("w1")
        await room.add_session("s1")
        await room.clock.sleep(5)
        assert (await room.session("s1")).status is SCHEDULED
        calls = room.ports[0].calls
        polled = calls.count("snapshot")
        while calls.count("snapshot") == polled:
            await room.clock.sleep(0.1)
        polled = calls.count("snapshot")
        await room.add_session("s2", timeslot=room.slot(in_minutes=600))
        await room.plane.records.sessions.change("s1", lambda session: replace(session, priority=1))
        await room.clock.sleep(20)
        assert calls.count("snapshot") == polled
        await room.add_session("s3")
        await room.clock.sleep(0.1)
        assert calls.count("snapshot") > polled
        assert (await room.session("s3")).status is SCHEDULED
