"""One worker's connection, in virtual time: how it comes, breaks, is given up and comes back."""

import itertools
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from lcm.domain.telemetry import MonitorState, SampleSource
from lcm.domain.worker import CmlLogin
from lcm.rest.schemas import CmlCredentials
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES
from support.live import W1, Watching, a_target, watching, watching_memory
from support.memory_live import MemoryLiveServer, MemoryLiveServers
from support.virtual_time import VirtualClock

CONNECTED, RECONNECTING = MonitorState.CONNECTED, MonitorState.RECONNECTING
FAILED, DISABLED, DISCONNECTED = MonitorState.FAILED, MonitorState.DISABLED, MonitorState.DISCONNECTED
LAB = "2b7f0c3a-52be-4c19-9a44-0be6f1a2d935"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cml(clock: VirtualClock) -> MemoryLiveServer:
    return MemoryLiveServer(clock)


@pytest.fixture
async def live(clock: VirtualClock, cml: MemoryLiveServer) -> AsyncIterator[Watching]:
    async with watching_memory({"10.0.0.1": cml}, clock) as (watching, _):
        yield watching


async def connected(live: Watching, stable: bool = True) -> None:
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)
    if stable:
        await live.clock.sleep(61)


# Coming.


async def test_a_connection_is_connected_at_its_first_event_not_before(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.is_mute = True
    live.registry.ensure_monitoring(a_target())
    assert live.state is MonitorState.CONNECTING
    await live.until_state(MonitorState.AUTHENTICATING)
    await clock.sleep(5)
    assert not live.monitor.is_connected
    cml.is_mute = False
    await live.until_state(CONNECTED, within_seconds=4)
    await live.until(lambda: live.plane.published() == ["connected"])
    assert len(cml.logins) == 1


async def test_live_load_is_reported_every_ten_seconds_and_readable_at_any_time(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    await connected(live, stable=False)
    await clock.sleep(60)
    samples = live.plane.samples
    assert {sample.source for sample in samples} == {SampleSource.WEBSOCKET}
    gaps = {
        round((later.collected_at - earlier.collected_at) / timedelta(seconds=3.3))
        for earlier, later in itertools.pairwise(samples)
    }
    assert 5 <= len(samples) <= 7
    assert gaps <= {3, 4}
    cml.load.percent = 90.0
    cml.push_stats()
    stats = live.monitor.latest_system_stats
    assert stats is not None
    assert stats.all.cpu is not None
    assert stats.all.cpu.percent == 90.0
    assert live.monitor.last_message_at == clock.monotonic()


async def test_a_node_that_starts_is_reported_at_once_as_change_and_as_activity(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    await connected(live)
    cml.push(node("QUEUED"))
    await clock.sleep(0.001)
    assert [change.event for change in live.plane.changes] == ["QUEUED"]
    assert live.plane.categories == ["queue_node"]
    assert [event.category for event in live.monitor.recent_activity_events] == ["queue_node"]


def node(event: str, lab_id: str = "lab-1") -> dict[str, str]:
    return {
        "event_type": "state_change",
        "lab_id": lab_id,
        "element_type": "node",
        "element_id": "n-1",
        "event": event,
    }


# Breaking, and coming back.


async def test_a_lost_connection_comes_back_by_itself_and_is_not_published(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    for code in (1000, 1001, 1006, 1008, 1011, 1012, 3000, 4242):
        cml.drop(code)
        await live.until_state(RECONNECTING)
        seconds = await live.until_state(CONNECTED)
        assert 0.7 < seconds < 1.2, code
        await live.clock.sleep(61)
    assert live.plane.published() == ["connected"]
    assert live.registry.activity_logs[W1].reconnects == 8


async def test_a_lab_that_runs_is_not_forgotten_when_the_connection_comes_back_after_a_while(
    live: Watching, cml: MemoryLiveServer
) -> None:
    async def run_a_lab(seconds: int) -> None:
        for _ in range(seconds // 3):
            cml.push({"event_type": "lab_stats", "lab_id": LAB, "data": {"nodes": {}, "links": {}}})
            await live.clock.sleep(3)

    await connected(live)
    await run_a_lab(30)
    cml.refuses_sockets = True
    cml.drop()
    await live.clock.sleep(120)
    cml.refuses_sockets = False
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)
    back_since = len(live.plane.samples)
    await live.clock.sleep(2)  # load comes first, then the labs
    await run_a_lab(30)
    counts = [sample.labs_count for sample in live.plane.samples[back_since:]]
    assert (counts[0], set(counts[1:])) == (None, {1})


async def test_every_reconnect_logs_in_anew(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    cml.expire_tokens()
    cml.drop()
    await live.until_state(RECONNECTING)
    await live.until_state(CONNECTED)
    assert len(cml.logins) == 2


async def test_waits_double_up_to_the_cap(clock: VirtualClock, cml: MemoryLiveServer) -> None:
    config = MonitoringConfig(max_reconnect_attempts=9)
    async with watching_memory({"10.0.0.1": cml}, clock, config) as (live, _):
        await connected(live)
        cml.refuses_sockets = True
        cml.drop()
        await live.until_state(FAILED)
        attempts = cml.connects[1:]
        waits = [later - earlier for earlier, later in itertools.pairwise(attempts)]
        for wait, expected in zip(waits, [2, 4, 8, 16, 30, 30, 30, 30], strict=True):
            assert 0.75 * expected <= wait <= expected + 0.1


async def test_three_failures_in_a_row_are_failed_and_reported_once(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    cml.refuses_sockets = True
    cml.drop()
    await live.until_state(FAILED)
    assert len(cml.connects) == 1 + 3
    await live.clock.sleep(300)
    assert len(cml.connects) == 1 + 3
    assert live.plane.published() == ["connected", "disconnected"]


async def test_each_cycle_tries_a_failed_connection_once_more(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    cml.refuses_sockets = True
    cml.drop()
    await live.until_state(FAILED)
    for cycle in range(1, 4):
        live.registry.ensure_monitoring(a_target())
        await live.clock.sleep(30)
        assert (live.state, len(cml.connects)) == (FAILED, 4 + cycle)
    assert live.plane.published() == ["connected", "disconnected"]
    cml.refuses_sockets = False
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)
    await live.until(lambda: live.plane.published() == ["connected", "disconnected", "connected"])


async def test_a_polite_close_in_a_loop_does_not_spin(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.closes_with = (1000, "bye")
    live.registry.ensure_monitoring(a_target())
    await live.until_state(FAILED)
    assert len(cml.connects) == 3
    for _ in range(10):
        live.registry.ensure_monitoring(a_target())
        await clock.sleep(30)
    assert len(cml.connects) == 13


async def test_a_silent_server_is_noticed_within_the_health_timeout(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    cml.is_mute = True
    seconds = await live.until_state(RECONNECTING)
    assert 56 < seconds <= 61
    assert not cml.sockets


async def test_a_dead_peer_is_noticed_by_the_missing_answer_to_a_ping(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    cml.is_frozen = True
    seconds = await live.until_state(RECONNECTING)
    assert 36 < seconds <= 42


@pytest.mark.parametrize(("stalls_at_first", "seconds"), [(False, 200), (True, 100)])
async def test_a_longer_health_timeout_gives_a_slow_server_more_time_at_every_stage(
    *, stalls_at_first: bool, seconds: float
) -> None:
    clock = VirtualClock()
    cml = MemoryLiveServer(clock)
    config = MonitoringConfig(health_timeout=300.0).following_health_timeout()
    async with watching_memory({"10.0.0.1": cml}, clock, config) as (live, _):
        if stalls_at_first:
            cml.is_mute = True
            live.registry.ensure_monitoring(a_target())
        else:
            await connected(live)
            cml.is_frozen = True
        assert await live.until_state(RECONNECTING, within_seconds=300) == pytest.approx(seconds, abs=6)


async def test_a_server_that_says_nothing_after_the_login_is_given_up(
    live: Watching, cml: MemoryLiveServer
) -> None:
    cml.is_mute = True
    live.registry.ensure_monitoring(a_target())
    await live.until_state(MonitorState.AUTHENTICATING)
    assert 19 < await live.until_state(RECONNECTING) < 22


async def test_garbage_does_not_disturb_and_does_not_count_as_a_sign_of_life(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    await connected(live)
    cml.is_mute = True
    for _ in range(55):
        await clock.sleep(1)
        assert live.state is CONNECTED
        for socket in list(cml.sockets):
            socket.push(b"\xff\x00{{{")
    await live.until_state(RECONNECTING, within_seconds=10)
    assert live.registry.activity_logs[W1].messages.garbage == 55


async def test_an_oversize_message_ends_the_connection_and_it_comes_back(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    cml.push_bytes(b" " * (MAX_MESSAGE_BYTES + 1))
    await live.until_state(RECONNECTING)
    assert "1009" in live.monitor.reason
    await live.until_state(CONNECTED)


async def test_a_late_frame_of_an_old_connection_counts_for_nothing(
    live: Watching, cml: MemoryLiveServer
) -> None:
    """B7: a late event after the worker was replaced."""
    await connected(live)
    [old] = cml.sockets
    listener = old._listener
    assert listener is not None
    cml.drop()
    await live.until_state(RECONNECTING)
    await live.until_state(CONNECTED)
    listener.on_message(msgspec.json.encode(node("QUEUED")))
    listener.on_closed(1000, "late")
    await live.clock.sleep(1)
    assert live.state is CONNECTED
    assert live.plane.categories == []


async def test_the_connection_is_renewed_before_its_token_ends(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock
) -> None:
    cml.cml.sessions.lifetime_seconds = 1_000
    await connected(live)
    await clock.sleep(0.8 * 1_000)
    assert live.state is CONNECTED
    assert (len(cml.logins), len(cml.sockets)) == (2, 1)
    assert live.plane.states() == [CONNECTED]


async def test_each_report_of_the_connection_has_its_number(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    cml.drop(1012)
    await live.until(lambda: len(live.plane.statuses) == 3)
    [stream] = {report.stream for _, report in live.plane.statuses}
    assert stream
    assert [report.sequence for _, report in live.plane.statuses] == [1, 2, 3]


async def test_a_worker_that_was_forgotten_by_mistake_gets_another_account(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    before = live.monitor.activity_log.stream
    live.registry.forget(a_target().worker_id)
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)
    assert live.monitor.activity_log.stream != before


# Refusals.


async def test_a_wrong_password_is_failed_at_once_and_not_hammered(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    async with watching_memory({"10.0.0.1": cml}, clock, password="wrong") as (live, _):
        live.registry.ensure_monitoring(a_target())
        await live.until_state(FAILED)
        assert live.monitor.reason.startswith("auth_failed")
        for _ in range(40):
            live.registry.ensure_monitoring(a_target())
            await clock.sleep(30)
        early = [at for at in cml.logins if at < 120]
        later = [second - first for first, second in itertools.pairwise(cml.logins[2:])]
        assert len(early) <= 3
        assert min(later) >= 120
        assert live.plane.published() == ["disconnected"]
        cml.password = "wrong"
        live.registry.ensure_monitoring(a_target())
        await clock.sleep(121)
        live.registry.ensure_monitoring(a_target())
        await live.until_state(CONNECTED, within_seconds=5)


async def test_refusals_are_remembered_when_a_worker_is_watched_again(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    async with watching_memory({"10.0.0.1": cml}, clock, password="wrong") as (live, _):
        for _ in range(5):
            live.registry.ensure_monitoring(a_target())
            await clock.sleep(10)
            live.registry.stop_monitoring(a_target().worker_id, "by mistake")
        assert len(cml.logins) == 3


async def test_refusals_are_kept_when_the_instance_has_another_address(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    servers = {f"10.0.0.{number}": cml for number in range(1, 6)}
    async with watching_memory(servers, clock, password="wrong") as (live, _):
        for host in servers:
            live.registry.ensure_monitoring(a_target(host=host))
            await clock.sleep(10)
        assert len(cml.logins) == 3


async def test_a_login_of_its_own_is_used_at_once_though_the_fleets_was_refused(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    async with watching_memory({"10.0.0.1": cml}, clock, password="wrong") as (live, _):
        live.registry.ensure_monitoring(a_target())
        for _ in range(4):
            await clock.sleep(30)
            live.registry.ensure_monitoring(a_target())
        assert len(cml.logins) == 3
        live.plane.logins[W1] = CmlCredentials(username="admin", password="secret", secret_ref="ref-1")
        own = CmlLogin(username="admin", secret_ref="ref-1")
        live.registry.ensure_monitoring(a_target(login=own))
        await live.until_state(MonitorState.CONNECTED, 5)
        assert len(cml.logins) == 4


async def test_a_login_of_its_own_that_cannot_be_read_is_asked_for_again(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    async with watching_memory({"10.0.0.1": cml}, clock, password="wrong") as (live, _):
        live.registry.ensure_monitoring(a_target(login=CmlLogin(username="admin", secret_ref="ref-1")))
        await live.until_state(MonitorState.RECONNECTING, 5)
        assert cml.logins == []
        live.plane.logins[W1] = CmlCredentials(username="admin", password="secret", secret_ref="ref-1")
        await live.until_state(MonitorState.CONNECTED, 60)
        assert len(cml.logins) == 1


async def test_two_refused_tokens_in_a_row_are_an_auth_failure(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    cml.refuses_tokens = True
    cml.drop(3000, "Unauthorized")
    await live.until_state(FAILED)
    assert live.monitor.reason.startswith("auth_failed: CLOSE 3000")
    connects = len(cml.connects)
    for _ in range(3):
        live.registry.ensure_monitoring(a_target())
        await live.clock.sleep(30)
    assert len(cml.connects) == connects
    cml.refuses_tokens = False
    await live.clock.sleep(31)
    live.registry.ensure_monitoring(a_target())
    await live.until_state(CONNECTED)


async def test_an_expired_token_costs_one_login(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    cml.expire_tokens()
    cml.drop(3000, "Unauthorized")
    await live.until_state(RECONNECTING)
    await live.until_state(CONNECTED)
    assert len(cml.logins) == 2


async def test_another_certificate_stops_everything_before_a_token_is_sent(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    cml.certificate_sha256 = "b" * 64
    logins = len(cml.logins)
    cml.drop()
    await live.until_state(FAILED)
    assert live.monitor.reason.startswith("certificate_changed")
    await live.clock.sleep(120)
    assert (len(cml.logins), len(cml.sockets)) == (logins, 0)


# Versions and switches.


@pytest.mark.parametrize("version", ["2.6.1", "2.5.0+build.3", "1.9"])
async def test_old_servers_are_polled_only(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock, version: str
) -> None:
    live.registry.ensure_monitoring(a_target(cml_version=version))
    await clock.sleep(130)
    assert (live.state, cml.connects) == (DISABLED, [])
    assert len(live.plane.samples) == 3


@pytest.mark.parametrize("version", ["2.7.0", "2.8.1+build.1"])
async def test_middle_aged_servers_get_one_attempt_per_start(
    live: Watching, cml: MemoryLiveServer, clock: VirtualClock, version: str
) -> None:
    cml.refuses_sockets = True
    target = a_target(cml_version=version)
    for _ in range(4):
        live.registry.ensure_monitoring(target)
        await clock.sleep(30)
    assert (live.state, len(cml.connects)) == (FAILED, 1)
    cml.refuses_sockets = False
    live.registry.stop_monitoring(W1, "stopped")
    live.registry.ensure_monitoring(target)
    await live.until_state(CONNECTED)


@pytest.mark.parametrize("version", ["2.9.0", "2.10.1", "3.0", None, "who knows"])
async def test_new_servers_are_watched_live(live: Watching, version: str | None) -> None:
    live.registry.ensure_monitoring(a_target(cml_version=version))
    await live.until_state(CONNECTED)


async def test_switched_off_means_polling_and_no_event_for_people(
    clock: VirtualClock, cml: MemoryLiveServer
) -> None:
    config = MonitoringConfig(websocket_enabled=False)
    async with watching_memory({"10.0.0.1": cml}, clock, config) as (live, _):
        live.registry.ensure_monitoring(a_target())
        await clock.sleep(130)
        assert (live.state, cml.connects, live.plane.published()) == (DISABLED, [], [])
        assert {sample.source for sample in live.plane.samples} == {SampleSource.REST}


@pytest.mark.parametrize(
    ("is_on", "version", "reason"),
    [(False, "2.9.1", "CML_WEBSOCKET_ENABLED is off"), (True, "2.6.1", "CML 2.6.1 has no WebSocket feed")],
)
async def test_a_disabled_connection_is_reported_because_the_record_may_hold_an_earlier_one(
    clock: VirtualClock, cml: MemoryLiveServer, is_on: bool, version: str, reason: str
) -> None:
    config = MonitoringConfig(websocket_enabled=is_on)
    async with watching_memory({"10.0.0.1": cml}, clock, config) as (live, _):
        for _ in range(3):
            live.registry.ensure_monitoring(a_target(cml_version=version))
            await clock.sleep(60)
        [(_, told)] = live.plane.statuses
        assert (told.status, told.connected, told.reason) == (DISABLED, False, reason)


# The registry.


async def test_another_address_gets_a_new_connection_and_the_old_one_is_closed(clock: VirtualClock) -> None:
    old, new = MemoryLiveServer(clock), MemoryLiveServer(clock)
    async with watching_memory({"10.0.0.1": old, "10.0.0.2": new}, clock) as (live, _):
        await connected(live)
        frames = live.registry.activity_logs[W1].messages.system_stats
        live.registry.ensure_monitoring(a_target(host="10.0.0.2"))
        assert not old.sockets
        await live.until_state(CONNECTED)
        assert (len(old.sockets), len(new.sockets)) == (0, 1)
        assert live.registry.activity_logs[W1].messages.system_stats > frames
        assert live.plane.published() == ["connected"]


async def test_the_same_worker_is_watched_once(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    for _ in range(5):
        live.registry.ensure_monitoring(a_target())
    await live.clock.sleep(60)
    assert (len(cml.sockets), len(cml.connects)) == (1, 1)


async def test_a_deliberate_stop_closes_and_is_reported_once(live: Watching, cml: MemoryLiveServer) -> None:
    await connected(live)
    live.registry.stop_monitoring(W1, "the worker is stopping")
    live.registry.stop_monitoring(W1, "the worker is stopping")
    assert not cml.sockets
    assert live.registry.get_monitor(W1) is None
    await live.clock.sleep(300)
    assert live.plane.published() == ["connected", "disconnected"]
    [_, (_, goodbye)] = live.plane.statuses
    assert (goodbye.status, goodbye.reason) == (DISCONNECTED, "the worker is stopping")
    assert len(cml.connects) == 1
    assert [path for at, path in cml.requests if at > 70] == []


async def test_losing_the_leadership_closes_everything_and_reports_nothing(
    live: Watching, cml: MemoryLiveServer
) -> None:
    await connected(live)
    live.registry.stop_all()
    assert not cml.sockets
    await live.clock.sleep(60)
    assert live.plane.published() == ["connected"]
    assert list(live.registry.monitors) == []


async def test_the_end_of_a_status_report_survives_an_unreachable_control_plane(
    live: Watching, cml: MemoryLiveServer
) -> None:
    live.plane.is_reachable = False
    await connected(live)
    cml.refuses_sockets = True
    cml.drop()
    await live.until_state(FAILED)
    await live.clock.sleep(100)
    assert live.plane.statuses == []
    live.plane.is_reachable = True
    await live.until(lambda: live.plane.states() == [FAILED])
    await live.clock.sleep(100)
    assert live.plane.states() == [FAILED]


async def test_a_thousand_lost_connections_come_back_twenty_a_second(clock: VirtualClock) -> None:
    servers = {f"10.0.{n // 250}.{n % 250}": MemoryLiveServer(clock) for n in range(200)}
    ports = MemoryLiveServers(servers, connect_seconds=4.0)
    async with watching(
        ports, ports, clock, MonitoringConfig(first_poll_after=600, poll_interval=600)
    ) as live:
        for host in servers:
            live.registry.ensure_monitoring(a_target(worker_id=host, host=host))
        await live.until(lambda: all(monitor.is_connected for monitor in live.registry.monitors))
        connects = sorted(at for server in servers.values() for at in server.connects)
        busiest = max(sum(start <= at < start + 1.0 for at in connects) for start in connects)
        assert busiest <= 21
        assert ports.most_at_once <= 50


async def test_the_sweep_is_alive_or_health_is_red(live: Watching, clock: VirtualClock) -> None:
    await clock.sleep(100)
    assert live.health.silent_loops == []
