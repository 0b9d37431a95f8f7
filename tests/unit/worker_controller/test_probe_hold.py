"""The half hour for which a probe holds the live feed, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from lcm.cml.session import Credentials
from lcm.core.ids import RandomIds
from lcm.domain.diagnosis import Finding, Verdict
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.probe.assumptions import judge
from lcm.worker_controller.probe.collect import CmlProbe
from support.memory_live import MemoryLiveServer, MemoryLiveServers
from support.virtual_time import VirtualClock

HOST = "10.0.0.1"
MINUTES = 30.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def cml(clock: VirtualClock) -> AsyncIterator[MemoryLiveServer]:
    server = MemoryLiveServer(clock)
    async with asyncio.TaskGroup() as tasks:
        pushing = tasks.create_task(server.push_forever())
        yield server
        pushing.cancel()


async def probed(
    cml: MemoryLiveServer, clock: VirtualClock, at_minute: float, happens: Callable[[], None]
) -> dict[str, Finding]:
    """What a probe of half an hour found, in which something happens."""
    servers = MemoryLiveServers({HOST: cml})
    credentials = Credentials("admin", cml.password)
    probe = CmlProbe(
        servers, servers, HOST, credentials, clock=clock, ids=RandomIds(), limits=MonitoringConfig()
    )
    async with asyncio.TaskGroup() as tasks:
        collecting = tasks.create_task(probe.collect(MINUTES))
        await clock.sleep(at_minute * 60)
        happens()
    return {finding.check: finding for finding in judge(collecting.result())}


def nothing() -> None: ...


async def test_a_feed_is_held_for_as_long_as_is_asked(cml: MemoryLiveServer, clock: VirtualClock) -> None:
    began = clock.monotonic()
    found = await probed(cml, clock, 1, nothing)
    assert clock.monotonic() - began == pytest.approx(MINUTES * 60, abs=5)
    of_feed = ("first", "load", "silence", "head", "types", "valid", "size", "pong", "lasts")
    assert {found[f"feed-{name}"].verdict for name in of_feed} == {Verdict.OK}
    assert found["feed-lasts"].detail == "held for 30.0 minutes"
    assert cml.sockets == {}


async def test_a_close_in_the_middle_is_reported_with_its_time(
    cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    found = await probed(cml, clock, 12, lambda: cml.drop(1001))
    assert found["feed-lasts"].verdict is Verdict.FAILED
    assert found["feed-lasts"].detail == "closed with 1001 after 720 s"


async def test_a_token_that_dies_during_the_hold_is_noticed_at_its_end(
    cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    found = await probed(cml, clock, 12, cml.expire_tokens)
    assert found["token-accepted"].verdict is Verdict.OK
    assert found["token-lasts"].verdict is Verdict.FAILED


async def test_a_silence_is_measured_though_pings_are_answered(
    cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    def mute() -> None:
        cml.is_mute = True

    found = await probed(cml, clock, 28, mute)
    assert found["feed-silence"].verdict is Verdict.FAILED
    assert found["feed-pong"].verdict is Verdict.OK
    assert found["feed-lasts"].verdict is Verdict.OK


async def test_pings_without_an_answer_are_counted(cml: MemoryLiveServer, clock: VirtualClock) -> None:
    def freeze() -> None:
        cml.is_frozen = True

    found = await probed(cml, clock, 20, freeze)
    assert found["feed-pong"].verdict is Verdict.FAILED
    assert found["token-lasts"].verdict is Verdict.UNKNOWN
