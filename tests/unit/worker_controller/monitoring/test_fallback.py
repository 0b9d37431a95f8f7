"""REST stands in while the live connection is down, and nothing is lost or counted twice."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from lcm.cml.connection import CmlAnswer
from lcm.domain.telemetry import ActivityEvent, MonitorState, SampleSource
from lcm.worker_controller.monitoring.telemetry_log import (
    LiveActivity,
    RawEntry,
    TelemetryLog,
    clock_skew,
)
from lcm.worker_controller.monitoring.telemetry_reader import parse_telemetry
from lcm.worker_controller.ports import ReportedActivity
from support.live import Watching, a_target, watching, watching_memory
from support.memory_live import MemoryLiveServer, MemoryLiveServers
from support.virtual_time import BEGINNING, VirtualClock

REST, WEBSOCKET = SampleSource.REST, SampleSource.WEBSOCKET
CONNECTED, FAILED = MonitorState.CONNECTED, MonitorState.FAILED
STATS, TELEMETRY = "/api/v0/system_stats", "/api/v0/telemetry/events"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cml(clock: VirtualClock) -> MemoryLiveServer:
    return MemoryLiveServer(clock)


@pytest.fixture
async def live(clock: VirtualClock, cml: MemoryLiveServer) -> AsyncIterator[Watching]:
    async with watching_memory({"10.0.0.1": cml}, clock) as (watching, _):
        watching.registry.ensure_monitoring(a_target())
        await watching.until_state(CONNECTED)
        await clock.sleep(61)
        yield watching


def start_node(cml: MemoryLiveServer, clock: VirtualClock, lab_id: str = "lab-1") -> None:
    """A person starts a node: it is in the telemetry, and sent to connected listeners."""
    for event, category in (("QUEUED", "queue_node"), ("STARTED", "start_node")):
        cml.note(category, clock.now(), lab_id=lab_id)
        cml.push(
            {
                "event_type": "state_change",
                "lab_id": lab_id,
                "element_type": "node",
                "element_id": "n-1",
                "event": event,
            }
        )


def asked(cml: MemoryLiveServer, path: str, since: float = 0.0) -> int:
    return sum(1 for at, asked_path in cml.requests if asked_path == path and at >= since)


async def test_a_live_connection_needs_no_polling(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    await clock.sleep(600)
    assert asked(cml, STATS) == 0
    assert asked(cml, TELEMETRY) == 1  # what happened before the connection


async def test_polling_stands_in_within_a_cycle_and_stops_when_the_connection_is_back(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.refuses_sockets = True
    cml.drop()
    lost_at = clock.monotonic()
    await live.until(lambda: asked(cml, STATS) == 1, within_seconds=30)
    await clock.sleep(180)
    assert 3 <= asked(cml, STATS, lost_at) <= 5
    assert live.plane.samples[-1].source is REST
    cml.refuses_sockets = False
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)
    polls = asked(cml, STATS)
    await clock.sleep(600)
    assert asked(cml, STATS) == polls
    assert live.plane.samples[-1].source is WEBSOCKET
    assert live.plane.published() == ["connected", "disconnected", "connected"]


async def test_what_people_do_is_counted_once_across_every_switch(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    deeds = 0
    for round_number in range(6):
        cml.refuses_sockets = round_number % 2 == 0
        cml.drop()
        for _ in range(40):
            start_node(cml, clock)
            deeds += 1
            await clock.sleep(1.7)
            if round_number % 3 == 2 and _ == 20:
                cml.drop()
        cml.refuses_sockets = False
        live.registry.ensure_monitoring(a_target())
        await live.until_state(CONNECTED)
        for _ in range(5):
            start_node(cml, clock)
            deeds += 1
            await clock.sleep(0.3)
        await clock.sleep(70)
    assert live.plane.categories.count("queue_node") == deeds
    assert live.plane.categories.count("start_node") == deeds
    assert {source for source, _ in live.plane.activity} == {REST, WEBSOCKET}


async def test_a_blip_shorter_than_a_poll_loses_nothing(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.drop()
    await clock.sleep(0.3)
    start_node(cml, clock)
    await live.until_state(CONNECTED)
    await clock.sleep(10)
    assert sorted(live.plane.categories) == ["queue_node", "start_node"]


async def test_what_people_did_while_the_connection_was_open_and_silent_is_found(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.is_mute = True
    await clock.sleep(10)
    start_node(cml, clock)
    await live.until(lambda: live.state is not CONNECTED)
    cml.is_mute = False
    await live.until_state(CONNECTED)
    await clock.sleep(10)
    assert sorted(live.plane.categories) == ["queue_node", "start_node"]


async def test_a_new_leader_finds_what_happened_without_a_leader_and_nothing_else(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    await clock.sleep(100)
    start_node(cml, clock)
    counted = tuple(
        ActivityEvent(category=category, at=clock.now() + timedelta(seconds=1), lab_id="lab-1")
        for category in ("queue_node", "start_node")
    )
    await clock.sleep(3)
    start_node(cml, clock)
    await clock.sleep(30)
    async with watching_memory({"10.0.0.1": cml}, clock) as (watching, _):
        watching.registry.ensure_monitoring(a_target(told=ReportedActivity(BEGINNING, counted)))
        await watching.until_state(CONNECTED)
        await clock.sleep(10)
        assert sorted(watching.plane.categories) == ["queue_node", "start_node"]
        assert {event.at for _, event in watching.plane.activity} == {BEGINNING + timedelta(seconds=103)}


async def test_another_address_does_not_count_the_telemetry_again(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.refuses_sockets = True
    cml.drop()
    await clock.sleep(1)
    live.plane.is_reachable = False
    start_node(cml, clock)
    await clock.sleep(30)
    cml.refuses_sockets = False
    live.registry.ensure_monitoring(a_target(instance_id="i-2"))
    await live.until_state(CONNECTED)
    await clock.sleep(10)
    live.plane.is_reachable = True
    await clock.sleep(40)
    assert sorted(live.plane.categories) == ["queue_node", "start_node"]


async def test_the_two_questions_fail_independently(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.refuses_sockets = True
    cml.failing = {STATS: 500}
    cml.drop()
    await clock.sleep(1)
    start_node(cml, clock)
    await clock.sleep(60)
    assert live.plane.categories == ["queue_node", "start_node"]
    assert [sample for sample in live.plane.samples if sample.source is REST] == []
    cml.failing = {TELEMETRY: 500}
    await clock.sleep(60)
    assert live.plane.samples[-1].source is REST


async def test_what_a_failed_catch_up_missed_is_found_later(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.failing = {TELEMETRY: 502}
    cml.refuses_sockets = True
    cml.drop()
    await clock.sleep(30)
    start_node(cml, clock)
    await clock.sleep(30)
    cml.refuses_sockets = False
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)
    await clock.sleep(30)
    assert live.plane.categories == []
    cml.failing = {}
    await clock.sleep(120)
    assert sorted(live.plane.categories) == ["queue_node", "start_node"]


class SlowDiaries(MemoryLiveServers):
    """The answer with the telemetry is in flight for a while."""

    async def request(self, method: str, host: str, path: str, *args: Any, **kwargs: Any) -> CmlAnswer:
        answer = await super().request(method, host, path, *args, **kwargs)
        if path == TELEMETRY:
            await self.servers[host].clock.sleep(4)
        return answer


async def test_what_people_did_in_a_blip_during_a_slow_catch_up_is_found(
    cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    servers = SlowDiaries({"10.0.0.1": cml})
    async with watching(servers, servers, clock) as live:
        live.registry.ensure_monitoring(a_target())
        await live.until_state(CONNECTED)
        await live.until(lambda: asked(cml, TELEMETRY))
        cml.drop()
        await clock.sleep(0.3)
        start_node(cml, clock)
        await live.until_state(CONNECTED)
        await clock.sleep(10)
        assert sorted(live.plane.categories) == ["queue_node", "start_node"]


async def test_an_unreachable_control_plane_delays_activity_and_loses_none(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    live.plane.is_reachable = False
    for _ in range(100):
        start_node(cml, clock)
        await clock.sleep(1)
    assert live.plane.activity == []
    live.plane.is_reachable = True
    await clock.sleep(40)
    assert len(live.plane.activity) == 200
    assert live.monitor.drain_activity_events() == []


async def test_a_lost_reply_does_not_count_activity_twice(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    live.plane.loses_replies = True
    start_node(cml, clock)
    await clock.sleep(5)
    assert live.monitor.drain_activity_events() != []
    live.plane.loses_replies = False
    await clock.sleep(40)
    assert live.plane.categories == ["queue_node", "start_node"]


async def test_malformed_telemetry_cannot_make_a_report_too_large_for_the_control_plane(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    """All workers' reports would be refused with it, again and again."""
    cml.refuses_sockets = True
    cml.drop()
    for number in range(500):
        cml.note("start_lab", clock.now(), lab_id="x" * 10_000 + str(number))
    await clock.sleep(30)
    assert live.plane.categories == ["start_lab"] * 500
    assert max(len(msgspec.json.encode(reports)) for _, reports in live.plane.requests) < 1024 * 1024


async def test_unconfirmed_activity_is_bounded_and_the_newest_is_kept(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    live.plane.is_reachable = False
    for number in range(800):
        start_node(cml, clock, lab_id=f"lab-{number}")
        await clock.sleep(0.01)
    assert len(live.registry.activity_logs[live.monitor.worker_id].unconfirmed) == 1_000
    live.plane.is_reachable = True
    await clock.sleep(40)
    assert len(live.plane.activity) == 1_000
    assert live.plane.activity[-1][1].lab_id == "lab-799"


async def test_activity_survives_a_reconnect_to_another_address(clock: VirtualClock) -> None:
    old, new = MemoryLiveServer(clock), MemoryLiveServer(clock)
    async with watching_memory({"10.0.0.1": old, "10.0.0.2": new}, clock) as (live, _):
        live.registry.ensure_monitoring(a_target())
        await live.until_state(CONNECTED)
        live.plane.is_reachable = False
        start_node(old, clock)
        live.registry.ensure_monitoring(a_target(host="10.0.0.2"))
        await live.until_state(CONNECTED)
        start_node(new, clock)
        await clock.sleep(60)
        live.plane.is_reachable = True
        await clock.sleep(40)
        assert live.plane.categories == ["queue_node", "start_node"] * 2


# The telemetry.


def entry(category: str, seconds: float, **data: Any) -> dict[str, Any]:
    return {
        "category": category,
        "timestamp": (BEGINNING + timedelta(seconds=seconds)).isoformat(),
        "data": data,
    }


def entries_of(*entries: dict[str, Any]) -> list[RawEntry]:
    return parse_telemetry(msgspec.json.encode(entries)).entries


def read(
    log: TelemetryLog,
    *entries: dict[str, Any],
    now: float = 1_000.0,
    live: list[ActivityEvent] | None = None,
    skew: float = 0.0,
) -> list[str]:
    at = BEGINNING + timedelta(seconds=now)
    fresh = log.take_new(
        entries_of(*entries),
        own_user_id="us",
        live=[LiveActivity(number, event) for number, event in enumerate(live or [])],
        now=at,
        skew=clock_skew(at, at, at + timedelta(seconds=skew)) or timedelta(0),
    )
    return [event.category for event in fresh]


def test_only_what_is_newer_than_the_mark_counts() -> None:
    log = TelemetryLog(BEGINNING + timedelta(seconds=100))
    entries = [entry("start_lab", 50), entry("stop_lab", 100), entry("import_lab", 101)]
    assert read(log, *entries) == ["import_lab"]
    assert read(log, *entries) == []


def test_an_event_of_the_same_second_as_the_last_one_still_counts() -> None:
    log = TelemetryLog(BEGINNING)
    assert read(log, entry("start_lab", 10)) == ["start_lab"]
    assert read(log, entry("start_lab", 10), entry("start_lab", 10)) == ["start_lab"]
    assert read(log, entry("start_lab", 10), entry("start_lab", 10), entry("stop_lab", 9)) == ["stop_lab"]


def test_automatic_entries_and_our_own_are_not_activity() -> None:
    log = TelemetryLog(BEGINNING)
    entries = [
        entry("system_stats", 10),
        entry("license_info", 10),
        entry("user_activity", 10, user_id="us"),
        entry("user_activity", 10, user_id="ann"),
        entry("running_nodes", 10),
    ]
    assert read(log, *entries) == ["user_activity"]


def test_what_was_counted_live_is_not_counted_again() -> None:
    log = TelemetryLog(BEGINNING)
    counted = [ActivityEvent(category="start_node", at=BEGINNING + timedelta(seconds=11), lab_id="l")]
    entries = [entry("start_node", 10, lab_id="l"), entry("start_node", 10, lab_id="other")]
    assert read(log, *entries, live=counted) == ["start_node"]
    assert read(log, *entries, live=counted) == []


def test_each_event_of_the_record_matches_one_entry_and_is_not_counted_again() -> None:
    recorded = ActivityEvent(category="start_lab", at=BEGINNING + timedelta(seconds=12), lab_id="l")
    log = TelemetryLog(BEGINNING, [recorded])
    entries = [entry("start_lab", 9, lab_id="l"), entry("start_lab", 11, lab_id="l")]
    assert read(log, *entries) == ["start_lab"]
    assert read(log, *entries) == []


def test_events_that_a_stopped_leader_received_late_count_all_the_same() -> None:
    recorded = ActivityEvent(category="start_lab", at=BEGINNING + timedelta(seconds=70), lab_id="l")
    assert read(TelemetryLog(BEGINNING, [recorded]), entry("start_lab", 10, lab_id="l")) == []
    entries = [entry("start_lab", 10, lab_id="l"), entry("start_lab", 69, lab_id="l")]
    assert read(TelemetryLog(BEGINNING, [recorded]), *entries) == ["start_lab"]


def test_a_late_event_matches_an_entry_only_if_the_process_was_stopped() -> None:
    counted = ActivityEvent(category="start_lab", at=BEGINNING + timedelta(seconds=40), lab_id="l")
    for late_by, fresh in ((0, 1), (30, 0)):
        found = TelemetryLog(BEGINNING).take_new(
            entries_of(entry("start_lab", 10, lab_id="l")),
            own_user_id="us",
            live=[LiveActivity(1, counted, timedelta(seconds=late_by))],
            now=BEGINNING + timedelta(seconds=50),
            skew=timedelta(0),
        )
        assert len(found) == fresh


@pytest.mark.parametrize(
    ("took", "server", "skew"),
    [
        (0.1, 0.0, 0),
        (0.1, 1.5, 0),  # a date in whole seconds
        (0.1, 420.0, 420),
        (0.1, -1200.0, -1200),
        (23.0, 0.0, 0),  # written at the end: the server is slow
        (23.0, -23.0, 0),  # written at once: we were stopped before we read it
        (23.0, -20.0, None),
        (23.0, 420.0, None),
    ],
)
def test_a_slow_answer_gives_the_servers_clock_only_if_it_agrees_with_ours(
    took: float, server: float, skew: float | None
) -> None:
    now = BEGINNING + timedelta(minutes=60)
    found = clock_skew(now - timedelta(seconds=took), now, now + timedelta(seconds=server))
    assert found == (timedelta(seconds=skew) if skew is not None else None)


def test_clocks_of_two_leaders_that_differ_by_seconds_do_not_mix_up_consecutive_events() -> None:
    counted = [
        ActivityEvent(category="start_lab", at=BEGINNING + timedelta(seconds=seconds), lab_id="l")
        for seconds in (10, 14)
    ]
    entries = [entry("start_lab", 12.7, lab_id="l"), entry("start_lab", 16.7, lab_id="l")]
    assert read(TelemetryLog(BEGINNING, counted), *entries) == []


def test_of_two_entries_the_closer_one_was_counted_live() -> None:
    log = TelemetryLog(BEGINNING)
    counted = [ActivityEvent(category="start_lab", at=BEGINNING + timedelta(seconds=13), lab_id="l")]
    fresh = log.take_new(
        entries_of(entry("start_lab", 10, lab_id="l"), entry("start_lab", 13, lab_id="l")),
        own_user_id="us",
        live=[LiveActivity(1, counted[0])],
        now=BEGINNING + timedelta(seconds=20),
        skew=timedelta(0),
    )
    assert [event.at for event in fresh] == [BEGINNING + timedelta(seconds=10)]


@pytest.mark.parametrize(
    "timestamp", ["2026-01-01T00:00:10", "2026-01-01T00:00:10Z", "2026-01-01T01:00:10.5+01:00"]
)
def test_times_come_with_and_without_a_zone(timestamp: str) -> None:
    log = TelemetryLog(BEGINNING)
    assert read(log, {"category": "start_lab", "timestamp": timestamp, "data": {}}) == ["start_lab"]


def test_a_server_whose_clock_is_wrong_is_read_by_our_clock() -> None:
    log = TelemetryLog(BEGINNING + timedelta(seconds=900))
    entries = [entry("start_lab", 950 - 3600), entry("stop_lab", 899 - 3600)]
    assert read(log, *entries, skew=-3600) == ["start_lab"]


def test_an_entry_at_the_edge_counts_once_however_the_servers_clock_is_read() -> None:
    log = TelemetryLog(BEGINNING)
    entries = [entry("start_lab", 104), entry("stop_lab", 109)]
    assert read(log, *entries, skew=4.0) == ["start_lab", "stop_lab"]
    for skew in (4.01, 3.99, 8.9, 4.0):
        assert read(log, *entries, skew=skew) == []


def test_odd_entries_are_passed_over() -> None:
    log = TelemetryLog(BEGINNING)
    odd: list[dict[str, Any]] = [
        {},
        {"category": ["x"], "timestamp": 5},
        {"category": "start_lab", "timestamp": "soon"},
        {"category": "start_lab", "timestamp": 7, "data": None},
    ]
    assert read(log, *odd, entry("stop_lab", 10)) == ["stop_lab"]


@pytest.mark.parametrize(
    ("timestamp", "skew"),
    [("0001-01-01T00:00:00Z", 10), ("0001-01-01T00:00:00+05:00", 0), ("9999-12-31T23:59:59-05:00", 0)],
)
def test_a_time_before_or_after_all_times_is_passed_over(timestamp: str, skew: float) -> None:
    odd = {"category": "start_lab", "timestamp": timestamp}
    assert read(TelemetryLog(BEGINNING), odd, entry("stop_lab", 30), skew=skew) == ["stop_lab"]
