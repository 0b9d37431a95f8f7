"""The stream: snapshots first, then every change once, in order; no subscriber waits for a slow one."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest
from msgspec.structs import replace

from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.control_plane.streaming.encoding import KEEPALIVE, EventFilter
from lcm.control_plane.streaming.hub import EventHub
from lcm.control_plane.streaming.outbox import CHANNEL_BYTES
from lcm.core.ids import RandomIds
from lcm.core.timeouts import timeout
from lcm.domain.launch import WorkerId
from lcm.domain.license import License, LicenseOperation, begin, complete, fail, request_operation
from lcm.domain.lifecycle import (
    DRAINING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TERMINATED,
    WorkerStatus,
)
from lcm.domain.observed import record_activity, record_connection
from lcm.domain.requests import drain, pause_idle, request
from lcm.domain.telemetry import (
    ActivityEvent,
    LabChange,
    LabStats,
    MonitorState,
    NodeStats,
    Sample,
    SampleSource,
    lab_after,
)
from lcm.domain.transitions import move
from lcm.domain.worker import Action, Worker
from support import core
from support.claims import claims_of
from support.virtual_time import VirtualClock

BATCHED = EventFilter(is_batched=True)


def a_worker(name: str, status: WorkerStatus = RUNNING) -> Worker:
    return core.a_worker(id=WorkerId(name), name=name, status=status)


def a_sample(name: str) -> Sample:
    return Sample(
        worker_id=WorkerId(name),
        collected_at=datetime(2026, 1, 1, tzinfo=UTC),
        source=SampleSource.WEBSOCKET,
        cpu_utilization=12.5,
    )


def lab_stats(lab_id: str, *, nodes: int) -> LabStats:
    return LabStats(
        worker_id=WorkerId("ada"),
        lab_id=lab_id,
        nodes={f"node-{n}": NodeStats(cpu_usage=12.5) for n in range(nodes)},
        links={},
        collected_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def a_lab_change(event: str) -> LabChange:
    return LabChange(
        worker_id=WorkerId("ada"),
        lab_id="l",
        element_type="node",
        element_id="n1",
        event=event,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        data={"label": "R1"},
    )


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
        VirtualClock(),
        RandomIds(Random(1)),
        WorkerCache(snapshot),
        buffer_size=50,
        subscriber_bytes=16 * 1024,
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


async def test_a_status_change_is_published_with_the_worker_and_its_previous_status(hub: EventHub) -> None:
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
    hub.on_worker_commit(ada, core.with_fields(ada, public_ip="198.51.100.7"))
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


async def test_a_slow_subscriber_is_reset_and_the_others_miss_nothing(hub: EventHub) -> None:
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


async def test_a_terminated_worker_leaves_no_connection_state(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    hub.on_worker_found(replace(a_worker("ada", TERMINATED), version=7))
    assert (await stream.next())["event"] == "worker.terminated"
    hub.on_worker_found(replace(a_worker("ada", TERMINATED), version=7))
    hub.on_worker_found(replace(a_worker("gone", TERMINATED), version=3))
    change(hub, "bob")
    assert (await stream.next())["data"]["worker_id"] == "bob"
    assert (await Stream(hub.stream(None)).next())["data"]["workers"] == 1


async def test_an_unpublished_commit_is_published_when_it_is_found(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    hub.on_worker_found(replace(a_worker("ada"), version=7))
    hub.on_worker_found(replace(a_worker("ada"), version=7))
    hub.on_worker_found(replace(a_worker("bob"), version=2))
    found = [
        (event["data"]["worker_id"], event["data"]["worker"]["version"]) for event in await stream.take(2)
    ]
    assert found == [("ada", 7), ("bob", 2)]


async def test_at_shutdown_every_subscriber_gets_a_last_event(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    hub.close()
    async with timeout(1):
        assert (await stream.next())["event"] == "system.sse.shutdown"
    with pytest.raises(StopAsyncIteration):
        await stream.next()


async def test_a_browser_whose_credential_ends_is_notified_and_disconnected(hub: EventHub) -> None:
    ends: list[Callable[[], None]] = []

    @contextmanager
    def while_signed_in(on_end: Callable[[], None]) -> Iterator[None]:
        ends.append(on_end)
        yield
        ends.remove(on_end)

    stream = Stream(hub.stream(None, while_signed_in=while_signed_in))
    await stream.take(3)
    (end,) = ends
    end()
    async with timeout(1):
        assert (await stream.next())["event"] == "auth.session.expired"
    with pytest.raises(StopAsyncIteration):
        await stream.next()
    assert (ends, hub.subscriber_count) == ([], 0)


async def test_a_browser_that_leaves_is_forgotten(hub: EventHub) -> None:
    chunks = hub.stream(None)
    await anext(chunks)
    assert hub.subscriber_count == 1
    await chunks.aclose()
    assert (hub.subscriber_count, hub.channel_count) == (0, 0)


# Batches.


async def test_load_reports_leave_in_one_batch_after_a_second(hub: EventHub) -> None:
    stream = Stream(hub.stream(None, BATCHED))
    await stream.take(3)
    clock = VirtualClock()
    started = clock.monotonic()
    for name in ("ada", "bob", "ada"):
        hub.on_sample(a_sample(name))
    batch = await stream.next()
    assert clock.monotonic() - started == pytest.approx(1.0)
    assert batch["event"] == "worker.metrics.updated.batch"
    data = batch["data"]
    assert set(data) == {"batch_id", "event_type", "count", "events", "batched_at"}
    assert (data["event_type"], data["count"]) == ("worker.metrics.updated", 3)
    assert [event["worker_id"] for event in data["events"]] == ["ada", "bob", "ada"]
    assert data["events"][0] == json.loads(msgspec.json.encode(a_sample("ada")))


async def test_fifty_load_reports_do_not_wait_for_the_second(hub: EventHub) -> None:
    stream = Stream(hub.stream(None, BATCHED))
    await stream.take(3)
    clock = VirtualClock()
    started = clock.monotonic()
    for _ in range(120):
        hub.on_sample(a_sample("ada"))
    batches = await stream.take(2)
    assert clock.monotonic() - started < 0.1
    batches.append(await stream.next())
    assert [batch["data"]["count"] for batch in batches] == [50, 50, 20]
    assert len({batch["data"]["batch_id"] for batch in batches}) == 3
    assert clock.monotonic() - started == pytest.approx(1.0)


async def test_a_batch_of_large_reports_is_cut_by_its_bytes(hub: EventHub) -> None:
    stream = Stream(hub.stream(None, BATCHED))
    await stream.take(3)
    for _ in range(20):
        hub.on_lab_stats(lab_stats("l", nodes=300))
    batch = await stream.next()
    assert batch["event"] == "worker.lab.stats_updated.batch"
    assert 1 < batch["data"]["count"] < 10
    assert set(batch["data"]["events"][0]) == {"worker_id", "lab_id", "nodes", "links"}


async def test_a_browser_that_was_away_during_a_reset_is_reset_too(hub: EventHub) -> None:
    stream = Stream(hub.stream(None, BATCHED))
    await stream.take(3)
    change(hub, "ada")
    last_seen = (await stream.next())["id"]
    hub.reset_all("another control plane was out of reach")
    for _ in range(2):  # also when something has happened since
        first, *snapshots = await Stream(hub.stream(last_seen, BATCHED)).take(3)
        assert first["event"] == "reset"
        assert [snapshot["event"] for snapshot in snapshots] == ["worker.snapshot"] * 2
        change(hub, "bob")
    assert (await Stream(hub.stream(first["id"], BATCHED)).take(2))[1]["data"]["worker_id"] == "bob"


async def test_missed_batches_are_replayed_too(hub: EventHub) -> None:
    stream = Stream(hub.stream(None, BATCHED))
    first = (await stream.take(3))[0]["id"]
    hub.on_sample(a_sample("ada"))
    batch = await stream.next()
    assert await Stream(hub.stream(first, BATCHED)).take(2) == [ANY, batch]


async def test_a_new_browser_is_shown_the_present_load(workers: list[Worker]) -> None:
    async def snapshot() -> Sequence[Worker]:
        return workers

    samples = [a_sample("ada"), a_sample("bob")]
    hub = EventHub(
        VirtualClock(), RandomIds(Random(1)), WorkerCache(snapshot), newest_samples=lambda: samples
    )
    load = (await Stream(hub.stream(None, BATCHED)).take(4))[-1]
    assert (load["event"], load["data"]["count"]) == ("worker.metrics.updated.batch", 2)
    assert "id" not in load


# Load without batches.


async def test_load_of_a_worker_leaves_once_a_second_under_its_own_name(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    clock = VirtualClock()
    started = clock.monotonic()
    for _ in range(60):
        hub.on_sample(a_sample("ada"))
    hub.on_sample(a_sample("bob"))
    ada, bob = await stream.take(2)
    assert clock.monotonic() - started == pytest.approx(1.0)
    assert [ada["event"], bob["event"]] == ["worker.metrics.updated"] * 2
    assert ada["data"] == json.loads(msgspec.json.encode(a_sample("ada")))
    hub.on_sample(a_sample("ada"))
    assert (await stream.next())["data"]["worker_id"] == "ada"
    assert clock.monotonic() - started == pytest.approx(2.0)


async def test_samples_of_several_sources_within_a_second_are_one_event(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    cloud = replace(
        a_sample("ada"), source=SampleSource.CLOUDWATCH, cpu_utilization=None, network_in_bytes=7.0
    )
    hub.on_sample(a_sample("ada"))
    hub.on_sample(cloud)
    data = (await stream.next())["data"]
    assert (data["cpu_utilization"], data["network_in_bytes"]) == (12.5, 7.0)


async def test_load_of_a_lab_leaves_once_a_second_as_the_seeds_say(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    for lab_id in ("l1", "l2", "l1"):
        hub.on_lab_stats(lab_stats(lab_id, nodes=1))
    events = await stream.take(2)
    assert [event["event"] for event in events] == ["worker.lab.stats_updated"] * 2
    assert [event["data"]["lab_id"] for event in events] == ["l1", "l2"]
    assert set(events[0]["data"]) == {"worker_id", "lab_id", "nodes", "links"}


async def test_much_load_leaves_in_pieces_and_no_lab_twice_in_a_second(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    clock = VirtualClock()
    sent_at: dict[str, float] = {}
    for _ in range(2):
        for n in range(100):
            hub.on_lab_stats(lab_stats(f"l{n}", nodes=300))
        for _ in range(100):
            lab_id = (await stream.next())["data"]["lab_id"]
            assert clock.monotonic() - sent_at.get(lab_id, float("-inf")) >= 1.0
            sent_at[lab_id] = clock.monotonic()
    assert (len(sent_at), hub.resets) == (100, 0)


async def test_missed_load_is_replayed_from_the_last_whole_piece(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    first = (await stream.take(3))[0]["id"]
    for name in ("ada", "bob"):
        hub.on_sample(a_sample(name))
    ada, bob = await stream.take(2)
    assert "id" not in ada  # a browser that got only this one asks for both again
    assert await Stream(hub.stream(first)).take(3) == [ANY, ada, bob]
    assert (await Stream(hub.stream(bob["id"])).next())["event"] == "connected"


async def test_each_subscriber_gets_load_in_the_form_it_asked_for(hub: EventHub) -> None:
    plain, batched = Stream(hub.stream(None)), Stream(hub.stream(None, BATCHED))
    for stream in (plain, batched):
        await stream.take(3)
    hub.on_sample(a_sample("ada"))
    assert (await plain.next())["event"] == "worker.metrics.updated"
    assert (await batched.next())["event"] == "worker.metrics.updated.batch"
    change(hub, "ada")
    for stream in (plain, batched):
        assert (await stream.next())["event"] == "worker.status.updated"


async def test_a_new_browser_is_shown_the_present_load_of_each_worker(workers: list[Worker]) -> None:
    async def snapshot() -> Sequence[Worker]:
        return workers

    cloud = replace(
        a_sample("ada"), source=SampleSource.CLOUDWATCH, cpu_utilization=None, network_in_bytes=7.0
    )
    samples = [a_sample("ada"), cloud, a_sample("bob")]
    hub = EventHub(
        VirtualClock(), RandomIds(Random(1)), WorkerCache(snapshot), newest_samples=lambda: samples
    )
    *_, ada, bob = await Stream(hub.stream(None)).take(5)
    assert [ada["event"], bob["event"]] == ["worker.metrics.updated"] * 2
    assert (ada["data"]["cpu_utilization"], ada["data"]["network_in_bytes"]) == (12.5, 7.0)
    assert "id" not in ada


# What leaves at once.


async def test_a_change_in_a_lab_is_published_exactly_and_at_once(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    clock = VirtualClock()
    started = clock.monotonic()
    change = a_lab_change("BOOTED")
    record = lab_after(None, [change])
    hub.on_lab_change([change], record, record)
    event = await stream.next()
    assert clock.monotonic() == started
    assert (event["event"], event["data"]) == (
        "worker.lab.state_change",
        {
            "worker_id": "ada",
            "lab_id": "l",
            "element_type": "node",
            "element_id": "n1",
            "event": "BOOTED",
            "data": {"label": "R1"},
        },
    )


async def test_a_labs_own_state_is_published_as_such(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    change = msgspec.structs.replace(a_lab_change("STARTED"), element_type="lab", element_id="l")
    started = lab_after(None, [change])
    hub.on_lab_change([change], None, started)
    hub.on_lab_change([change], started, None)
    events = await stream.take(4)
    statuses = [e["data"]["status"] for e in events if e["event"] == "lab.status.updated"]
    assert statuses == ["STARTED", "DELETED"]


async def test_a_connection_and_its_end_are_published_exactly(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    ada = a_worker("ada")
    since = datetime(2026, 1, 2, tzinfo=UTC)
    states = (MonitorState.CONNECTED, MonitorState.RECONNECTING, MonitorState.FAILED)
    for state in states:
        after = record_connection(ada, state, reason="cut", at=since)
        hub.on_worker_commit(ada, after)
        ada = after
    events = [event for event in await stream.take(5) if event["event"].startswith("worker.ws.")]
    when = "2026-01-02T00:00:00Z"
    assert [(event["event"], event["data"]) for event in events] == [
        ("worker.ws.connected", {"worker_id": "ada", "connected_at": when}),
        ("worker.ws.disconnected", {"worker_id": "ada", "disconnected_at": when, "reason": "cut"}),
    ]


async def test_a_disconnect_whose_commit_was_never_confirmed_is_published_when_found(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    ada, now = a_worker("ada"), datetime(2026, 1, 2, tzinfo=UTC)
    connected = record_connection(ada, MonitorState.CONNECTED, reason="", at=now)
    hub.on_worker_commit(ada, connected)
    failed = record_connection(connected, MonitorState.FAILED, reason="cut", at=now)
    back = record_connection(failed, MonitorState.CONNECTED, reason="", at=now)
    back = replace(back, version=ada.version + 3)
    hub.on_worker_found(replace(failed, version=ada.version + 2))
    hub.on_worker_commit(failed, back)
    hub.on_worker_commit(back, core.with_fields(back, labs_count=1))
    events = [event["event"] for event in await stream.take(7)]
    connections = [event for event in events if event.startswith("worker.ws.")]
    assert connections == ["worker.ws.connected", "worker.ws.disconnected", "worker.ws.connected"]


async def test_a_connection_is_published_as_in_the_newest_commit_whichever_is_confirmed_first(
    hub: EventHub,
) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    ada, now = a_worker("ada"), datetime(2026, 1, 2, tzinfo=UTC)
    lost = core.with_fields(ada, version=ada.version + 1, ws_published=False)
    back = core.with_fields(lost, version=ada.version + 2, ws_published=True, ws_connected_at=now)
    hub._worker_cache.learn(back)
    hub.on_worker_commit(lost, back)
    hub.on_worker_commit(ada, lost)
    events = [event["event"] for event in await stream.take(3)]
    assert [event for event in events if event.startswith("worker.ws.")] == ["worker.ws.connected"]


async def test_activity_and_a_changed_number_of_labs_have_event_names_of_their_own(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    ada, now = a_worker("ada"), datetime(2026, 1, 2, tzinfo=UTC)
    found = ActivityEvent(category="start_lab", at=now)
    hub.on_worker_commit(ada, record_activity(ada, [found], mark=None, now=now, keep=10))
    hub.on_worker_commit(ada, core.with_fields(ada, labs_count=3))
    activity, labs = await stream.take(2)
    assert activity["event"] == "worker.activity.updated"
    assert activity["data"]["last_activity_at"] == "2026-01-02T00:00:00Z"
    assert activity["data"]["recent_activity_events"][0]["category"] == "start_lab"
    assert (labs["event"], labs["data"]["labs_count"]) == ("worker.labs.updated", 3)


async def test_what_happens_together_leaves_in_one_write(hub: EventHub) -> None:
    chunks = hub.stream(None)
    for _ in range(2):
        await anext(chunks)
    change(hub, times=5)
    assert (await anext(chunks)).count(b"event: worker.status.updated") == 5


# Filters.


async def received_through(hub: EventHub, wanted: EventFilter) -> list[str]:
    """Return what a subscriber with this filter receives of one event of each kind."""
    stream = Stream(hub.stream(None, wanted))
    greeting = await stream.next()
    await stream.take(greeting["data"]["workers"])
    change(hub, "ada")
    change(hub, "bob")
    hub.on_sample(a_sample("ada"))
    hub.on_sample(a_sample("bob"))
    hub.on_lab_change([a_lab_change("BOOTED")], None, None)
    received: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with timeout(2):
            while True:
                event = await stream.next()
                about = event["data"].get("worker_id") or [e["worker_id"] for e in event["data"]["events"]]
                received.append(f"{event['event']} {about}")
    return received


@pytest.mark.parametrize(
    ("wanted", "received"),
    [
        (
            EventFilter(worker_ids=frozenset({"bob"})),
            ["worker.status.updated bob", "worker.metrics.updated bob"],
        ),
        (
            EventFilter(worker_ids=frozenset({"bob"}), is_batched=True),
            ["worker.status.updated bob", "worker.metrics.updated.batch ['bob']"],
        ),
        (EventFilter(event_types=("worker.lab.",)), ["worker.lab.state_change ada"]),
        (
            EventFilter(event_types=("worker.status", "worker.metrics.updated.batch"), is_batched=True),
            [
                "worker.status.updated ada",
                "worker.status.updated bob",
                "worker.metrics.updated.batch ['ada', 'bob']",
            ],
        ),
        (EventFilter(worker_ids=frozenset({"nobody"})), []),
        (EventFilter(event_types=("lab.",), worker_ids=frozenset({"ada"})), []),
    ],
)
async def test_a_filter_lets_through_what_was_asked_for(
    hub: EventHub, wanted: EventFilter, received: list[str]
) -> None:
    assert await received_through(hub, wanted) == received


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (EventFilter(worker_ids=frozenset({"bob"})), ["bob"]),
        (EventFilter(event_types=("worker.",)), ["ada", "bob"]),
        (EventFilter(event_types=("worker.lab",)), []),
    ],
)
async def test_snapshots_are_filtered_like_events_and_their_number_is_announced(
    hub: EventHub, wanted: EventFilter, names: list[str]
) -> None:
    stream = Stream(hub.stream(None, wanted))
    greeting = await stream.next()
    assert greeting["data"]["workers"] == len(names)
    assert [s["data"]["worker"]["name"] for s in await stream.take(len(names))] == names


async def test_a_filtered_browser_that_comes_back_gets_its_part_of_what_it_missed(hub: EventHub) -> None:
    wanted = EventFilter(worker_ids=frozenset({"bob"}))
    first = (await Stream(hub.stream(None, wanted)).next())["id"]
    change(hub, "ada")
    change(hub, "bob")
    _, missed = await Stream(hub.stream(first, wanted)).take(2)
    assert missed["data"]["worker_id"] == "bob"


async def test_subscribers_with_the_same_filter_share_what_they_are_sent(hub: EventHub) -> None:
    wanted = [EventFilter(worker_ids=frozenset({"ada"}), event_types=("worker.",)) for _ in range(2)]
    streams = [hub.stream(None, each) for each in wanted]
    for stream in streams:
        for _ in range(2):
            await anext(stream)
    assert (hub.subscriber_count, hub.channel_count) == (2, 1)
    hub.on_sample(a_sample("ada"))
    hub.on_sample(a_sample("bob"))
    first, second = [await anext(stream) for stream in streams]
    assert first is second


async def test_without_system_events_the_connection_is_kept_open_by_comments(hub: EventHub) -> None:
    chunks = hub.stream(None, EventFilter(include_system=False, event_types=("lab.",)))
    await anext(chunks)
    assert await anext(chunks) == KEEPALIVE
    hub.close()
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)


# Bounds.


async def test_a_reader_that_stalls_holds_a_bounded_number_of_bytes(hub: EventHub) -> None:
    stalled, quick = Stream(hub.stream(None)), Stream(hub.stream(None))
    await stalled.take(3)
    await quick.take(3)
    for _ in range(300):
        change(hub, times=5)
        await quick.take(5)
        held = [s._bytes for channel in hub._channels.values() for s in channel.subscribers]
        assert max(held) <= 16 * 1024
    first = await stalled.next()
    assert (first["event"], first["data"]["reason"]) == ("reset", "the browser reads too slowly")
    after_reset = await stalled.take(2)
    change(hub, "bob")
    newest = await stalled.next()
    assert int(newest["id"].rpartition("-")[2]) > int(after_reset[-1]["id"].rpartition("-")[2])


async def test_a_subscriber_that_overflowed_during_a_send_is_reset_without_another_event(
    hub: EventHub,
) -> None:
    chunks = hub.stream(None)
    for _ in range(2):
        await anext(chunks)
    change(hub)
    await anext(chunks)  # the reader is busy with this one while the rest comes in
    change(hub, times=100)
    await VirtualClock().sleep(1)
    async with timeout(1):
        assert b"event: reset" in await anext(chunks)


async def test_a_burst_larger_than_one_flush_reaches_a_quick_reader_whole(workers: list[Worker]) -> None:
    async def snapshot() -> Sequence[Worker]:
        return workers

    hub = EventHub(VirtualClock(), RandomIds(Random(1)), WorkerCache(snapshot))
    stream = Stream(hub.stream(None))
    await stream.take(3)
    change(hub, times=500)
    ids = [int(event["id"].rpartition("-")[2]) for event in await stream.take(500)]
    assert ids == list(range(1, 501))
    assert hub.resets == 0


async def test_what_waits_for_the_next_flush_is_bounded(workers: list[Worker]) -> None:
    async def snapshot() -> Sequence[Worker]:
        return workers

    hub = EventHub(VirtualClock(), RandomIds(Random(1)), WorkerCache(snapshot))
    stream = Stream(hub.stream(None))
    await stream.take(3)
    [channel] = hub._channels.values()
    for _ in range(40):
        hub.publish("lab.status.updated", {"worker_id": "ada", "title": "x" * 100_000})
        assert channel.pending_bytes == sum(len(chunk) for chunk in channel.pending) <= CHANNEL_BYTES
    first = await stream.next()
    assert (first["event"], first["data"]["reason"]) == ("reset", "the browser reads too slowly")
    await stream.take(2)
    change(hub, "bob")
    assert await received(stream) == [number(first) + 1]


async def news_pending(hub: EventHub) -> Stream:
    """A reader that has read nothing of twenty events: two flushes were made and there is more to come."""
    stream = Stream(hub.stream(None))
    await stream.take(3)
    for _ in range(20):
        hub.publish("lab.status.updated", {"worker_id": "ada", "title": "x" * 10_000})
    while hub.flushes < 2:
        await VirtualClock().sleep(0.000_01)
    [channel] = hub._channels.values()
    assert channel.pending
    return stream


def number(event: dict[str, Any]) -> int:
    return int(event["id"].rpartition("-")[2])


async def received(stream: Stream) -> list[int]:
    """The numbers of what comes within a second."""
    numbers: list[int] = []
    with contextlib.suppress(TimeoutError):
        async with timeout(1):
            while True:
                numbers.append(number(await stream.next()))
    return numbers


async def is_told_only_what_is_newer(hub: EventHub, stream: Stream, first_event: str) -> None:
    first, *snapshots = await stream.take(3)
    assert (first["event"], number(first)) == (first_event, hub._count)
    assert [(s["event"], s["id"]) for s in snapshots] == [("worker.snapshot", first["id"])] * 2
    change(hub, "bob")
    assert await received(stream) == [number(first) + 1]


async def test_a_slow_subscriber_that_was_reset_gets_nothing_older_than_its_snapshots(hub: EventHub) -> None:
    stream = await news_pending(hub)
    await is_told_only_what_is_newer(hub, stream, "reset")


async def test_a_browser_that_joins_a_channel_gets_nothing_older_than_its_snapshots(hub: EventHub) -> None:
    await news_pending(hub)
    await is_told_only_what_is_newer(hub, Stream(hub.stream(None)), "connected")


async def test_a_subscriber_of_a_reset_gets_nothing_older_than_its_snapshots(
    workers: list[Worker],
) -> None:
    async def snapshot() -> Sequence[Worker]:
        return workers

    hub = EventHub(VirtualClock(), RandomIds(Random(1)), WorkerCache(snapshot))  # no subscriber is too slow
    stream = await news_pending(hub)
    hub.reset_all("another control plane was out of reach")
    await is_told_only_what_is_newer(hub, stream, "reset")


async def test_the_buffer_for_those_who_come_back_is_bounded_by_bytes(workers: list[Worker]) -> None:
    async def snapshot() -> Sequence[Worker]:
        return workers

    hub = EventHub(VirtualClock(), RandomIds(Random(1)), WorkerCache(snapshot), buffer_size=10**9)
    for _ in range(10):
        hub.publish("lab.status.updated", {"worker_id": "ada", "title": "x" * 1_000_000})
    greeting = await Stream(hub.stream(None)).next()
    boot = greeting["data"]["boot"]
    assert (await Stream(hub.stream(f"{boot}-9")).take(2))[1]["id"] == f"{boot}-10"
    assert (await Stream(hub.stream(f"{boot}-2")).next())["event"] == "reset"


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNLICENSED, REGISTER = License(), LicenseOperation.REGISTER
REQUESTED = request_operation(UNLICENSED, REGISTER, token_ref="t", now=NOON)
BEGUN = begin(REQUESTED, REGISTER, now=NOON)
REGISTERED = complete(BEGUN, REGISTER, tier=None, now=NOON)
GIVEN_BACK = complete(
    begin(
        request_operation(REGISTERED, LicenseOperation.DEREGISTER, now=NOON),
        LicenseOperation.DEREGISTER,
        now=NOON,
    ),
    LicenseOperation.DEREGISTER,
    tier=None,
    now=NOON,
)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({}, {"is_idle_detection_enabled": False}, "worker.idle_detection.toggled"),
        ({}, {"ami_name": "CML-2.9"}, "worker.ec2_details.updated"),
        ({"license": REQUESTED}, {"license": BEGUN}, "worker.license.registration.started"),
        ({"license": BEGUN}, {"license": REGISTERED}, "worker.license.registration.completed"),
        (
            {"license": BEGUN},
            {"license": fail(BEGUN, REGISTER, reason="no license is left", now=NOON)},
            "worker.license.registration.failed",
        ),
        ({"license": REGISTERED}, {"license": GIVEN_BACK}, "worker.license.deregistered"),
    ],
)
async def test_what_happens_to_a_worker_has_a_name_of_its_own(
    hub: EventHub, before: dict[str, Any], after: dict[str, Any], name: str
) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    known = core.with_fields(a_worker("ada"), **before)
    hub.on_worker_commit(known, core.with_fields(known, **after))
    assert (await stream.next())["event"] == name


async def test_a_drain_that_timed_out_is_published_and_one_that_ended_in_time_is_not(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    deadline = NOON + timedelta(hours=4)
    waiting = replace(
        drain(a_worker("ada"), deadline=deadline, by="ann", reason="maintenance", now=NOON),
        status=DRAINING,
        claims=claims_of("exam"),
    )
    left = replace(waiting, claims=())
    for before, at in ((left, deadline), (waiting, NOON), (waiting, deadline)):
        hub.on_worker_commit(before, move(before, STOPPING, by="c", reason="r", now=at))
    names = [(await stream.next())["event"] for _ in range(3)]
    assert names == ["worker.paused", "worker.paused", "worker.drain.timed_out"]


async def test_a_pause_and_a_resume_are_published(hub: EventHub) -> None:
    stream = Stream(hub.stream(None))
    await stream.take(3)
    running = a_worker("ada")
    paused = pause_idle(running, by="idle detection", reason="unused", now=NOON)
    hub.on_worker_commit(running, paused)
    stopped = move(
        move(paused, STOPPING, by="c", reason="r", now=NOON), STOPPED, by="c", reason="r", now=NOON
    )
    wanted = request(stopped, Action.START, by="ann", now=NOON)
    starting = move(wanted, STARTING, by="c", reason="r", now=NOON)
    later = NOON + timedelta(minutes=1)
    hub.on_worker_commit(starting, move(starting, RUNNING, by="c", reason="r", now=later))
    names = [(await stream.next())["event"] for _ in range(2)]
    assert names == ["worker.paused", "worker.resumed"]
