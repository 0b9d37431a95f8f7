"""The stream: snapshots first, then every change once, in order; nobody waits for a slow reader."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.roster import Roster
from lcm.control_plane.sse import EventHub
from lcm.core.chance import RandomIds
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import PROVISIONING, RUNNING, TERMINATED, WorkerStatus
from lcm.domain.worker import Worker, new_worker
from lcm.simulator.virtual_time import VirtualClock


def a_worker(name: str, status: WorkerStatus = RUNNING) -> Worker:
    worker = new_worker(
        worker_id=WorkerId(name),
        name=name,
        template_name="small",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return replace(worker, status=status)


class Stream:
    """What one browser receives."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._events: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        while not self._events:
            text = (await anext(self._chunks)).decode()
            self._events = [self._parse(part) for part in text.split("\n\n") if part]
        return self._events.pop(0)

    async def take(self, count: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(count)]

    @staticmethod
    def _parse(part: str) -> dict[str, Any]:
        fields = dict(line.split(": ", 1) for line in part.splitlines())
        return {**fields, "data": json.loads(fields["data"])}


@pytest.fixture
def workers() -> list[Worker]:
    return [a_worker("ada"), a_worker("bob"), a_worker("gone", TERMINATED)]


@pytest.fixture
def hub(workers: list[Worker]) -> EventHub:
    async def snapshot() -> Sequence[Worker]:
        return workers

    return EventHub(
        VirtualClock(), RandomIds(Random(1)), Roster(snapshot), buffer_size=50, subscriber_bytes=16 * 1024
    )


def change(hub: EventHub, name: str = "ada", times: int = 1) -> None:
    for _ in range(times):
        hub.on_worker_commit(a_worker(name, PROVISIONING), a_worker(name))


async def test_first_comes_a_greeting_and_one_snapshot_per_live_worker(hub: EventHub) -> None:
    greeting, *snapshots = await Stream(hub.stream(None)).take(3)
    assert greeting["event"] == "connected"
    assert greeting["data"]["workers"] == 2
    assert [snapshot["event"] for snapshot in snapshots] == ["worker.snapshot"] * 2
    assert [snapshot["data"]["worker"]["name"] for snapshot in snapshots] == ["ada", "bob"]


async def test_a_status_change_is_told_with_the_worker_and_its_previous_status(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    change(hub)
    event = await stream.next()
    assert event["event"] == "worker.status.updated"
    assert event["data"]["worker_id"] == "ada"
    assert event["data"]["worker"]["status"] == "running"
    assert event["data"]["previous_status"] == "provisioning"


async def test_events_are_named_after_what_happened(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    ada = a_worker("ada")
    hub.on_worker_commit(None, ada)
    hub.on_worker_commit(ada, replace(ada, public_ip="198.51.100.7"))
    hub.on_worker_commit(ada, replace(ada, status=TERMINATED))
    names = [event["event"] for event in await stream.take(3)]
    assert names == ["worker.created", "worker.endpoint.updated", "worker.terminated"]


async def test_ids_grow_by_one_and_carry_the_boot(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    change(hub, times=3)
    ids = [event["id"] for event in await stream.take(3)]
    boot = ids[0].rpartition("-")[0]
    assert ids == [f"{boot}-{n}" for n in (1, 2, 3)]


async def test_a_browser_that_comes_back_gets_exactly_what_it_missed(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    change(hub, "ada")
    last_seen = (await stream.next())["id"]
    change(hub, "bob", times=2)
    greeting, *missed = await Stream(hub.stream(last_seen)).take(3)
    assert (greeting["event"], greeting["data"]["workers"]) == ("connected", 0)
    assert [event["data"]["worker_id"] for event in missed] == ["bob", "bob"]


@pytest.mark.parametrize(
    "last_event_id", ["otherboot-1", "garbage", "-", "{boot}-999", "{boot}-x", "{boot}-0"]
)
async def test_what_cannot_be_replayed_is_reset_with_fresh_snapshots(
    hub: EventHub, last_event_id: str
) -> None:
    stream = Stream(hub.stream(None))
    greeting, *_ = await stream.take(3)
    change(hub, times=60)  # more than the buffer keeps
    boot = greeting["data"]["boot"]
    first, *snapshots = await Stream(hub.stream(last_event_id.format(boot=boot))).take(3)
    assert first["event"] == "reset"
    assert [snapshot["event"] for snapshot in snapshots] == ["worker.snapshot"] * 2


async def test_a_slow_reader_is_told_reset_and_the_others_miss_nothing(hub: EventHub) -> None:
    slow, quick = Stream(hub.stream(None)), Stream(hub.stream(None))
    await slow.take(3)
    await quick.take(3)
    for _ in range(40):
        change(hub)
        assert (await quick.next())["event"] == "worker.status.updated"
    first, *snapshots = await slow.take(3)
    assert first["event"] == "reset"
    assert len(snapshots) == 2
    assert hub.resets > 0


async def test_a_quiet_stream_beats_every_thirty_seconds(hub: EventHub) -> None:
    clock = VirtualClock()
    stream = Stream(hub.stream(None))
    await stream.take(3)
    started = clock.monotonic()
    beats = await stream.take(2)
    assert [beat["event"] for beat in beats] == ["heartbeat", "heartbeat"]
    assert clock.monotonic() - started == 60


async def test_a_commit_nobody_was_told_of_is_told_when_it_is_found(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    hub.on_worker_found(replace(a_worker("ada"), version=7))
    hub.on_worker_found(replace(a_worker("ada"), version=7))
    hub.on_worker_found(replace(a_worker("bob"), version=2))
    told = [
        (event["data"]["worker_id"], event["data"]["worker"]["version"]) for event in await stream.take(2)
    ]
    assert told == [("ada", 7), ("bob", 2)]


async def test_at_the_end_everybody_is_told(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    hub.close()
    async with asyncio.timeout(1):
        assert (await stream.next())["event"] == "system.sse.shutdown"
    with pytest.raises(StopAsyncIteration):
        await stream.next()


async def test_a_browser_that_leaves_is_forgotten(hub: EventHub) -> None:
    chunks = hub.stream(None)
    await anext(chunks)
    assert hub.subscriber_count == 1
    await chunks.aclose()  # type: ignore[attr-defined]
    assert hub.subscriber_count == 0
