"""Reports to the control plane: everything, in few requests."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from lcm.core.health import Health
from lcm.domain.errors import Fenced, RequestError
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import (
    ActivityEvent,
    LabChange,
    LabStats,
    LinkStats,
    MonitorState,
    NodeStats,
    Sample,
    SampleSource,
)
from lcm.rest.schemas import LiveReports, WebSocketReport
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.reporter import MAX_CHANGES, LiveReporter
from lcm.worker_controller.ports import ReportedActivity
from support.core import first_error
from support.live import CollectingControlPlane
from support.virtual_time import BEGINNING, VirtualClock

W1 = WorkerId("w-1")


@pytest.fixture
def plane() -> CollectingControlPlane:
    return CollectingControlPlane(VirtualClock())


@pytest.fixture
async def reporter(plane: CollectingControlPlane) -> AsyncIterator[LiveReporter]:
    clock = VirtualClock()
    reporter = LiveReporter(plane, MonitoringConfig(), clock, Health(clock))
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(reporter.run())
        await clock.sleep(0.5)
        yield reporter
        life.cancel()


def change(number: int = 0) -> LabChange:
    return LabChange(
        worker_id=W1,
        lab_id="l",
        element_type="node",
        element_id=f"n-{number}",
        event="BOOTED",
        at=BEGINNING,
    )


def sample(percent: float, worker_id: str = "w-1") -> Sample:
    return Sample(
        worker_id=WorkerId(worker_id),
        collected_at=BEGINNING + timedelta(seconds=percent),
        source=SampleSource.WEBSOCKET,
        cpu_utilization=percent,
    )


async def test_a_change_leaves_at_once(reporter: LiveReporter, plane: CollectingControlPlane) -> None:
    reporter.add_change(change())
    await VirtualClock().sleep(0)
    await VirtualClock().sleep(0.001)
    assert len(plane.requests) == 1


async def test_changes_of_one_window_travel_together(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    for number in range(100):
        reporter.add_change(change(number))
        await VirtualClock().sleep(0.001)
    await VirtualClock().sleep(0.03)
    assert len(plane.changes) == 100
    assert 4 <= len(plane.requests) <= 6


async def test_reports_are_collected_while_a_request_is_in_flight(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    plane.answer_seconds = 0.2
    for number in range(50):
        reporter.add_change(change(number))
        await VirtualClock().sleep(0.01)
    await VirtualClock().sleep(1)
    assert [c.element_id for c in plane.changes] == [f"n-{number}" for number in range(50)]
    assert len(plane.requests) <= 4


async def test_load_rides_in_one_batch_a_second_and_the_newest_wins(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    for percent in range(10):
        reporter.add_sample(sample(float(percent)))
        reporter.add_sample(sample(float(percent), "w-2"))
    await VirtualClock().sleep(1.1)
    [(_, reports)] = plane.requests
    assert [s.cpu_utilization for s in reports.samples] == [9.0, 9.0]


async def test_a_change_does_not_wait_until_all_of_the_load_is_reported(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    plane.answer_seconds = 0.01
    for number in range(1_000):
        reporter.add_sample(sample(1.0, f"w-{number}"))
    await VirtualClock().sleep(0.505)  # the load of the second is on its way
    reporter.add_change(change())
    await VirtualClock().sleep(1)
    with_change = next(n for n, (_, reports) in enumerate(plane.requests) if reports.lab_changes)
    assert with_change == 1
    assert len(plane.requests) > 5
    assert len(plane.samples) == 1_000


async def test_a_failed_report_keeps_the_newest_load_and_all_changes(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    plane.is_reachable = False
    reporter.add_sample(sample(1.0))
    reporter.add_change(change(1))
    await VirtualClock().sleep(5)
    reporter.add_sample(sample(2.0))
    reporter.add_change(change(2))
    plane.is_reachable = True
    await VirtualClock().sleep(40)
    assert [s.cpu_utilization for s in plane.samples] == [2.0]
    assert [c.element_id for c in plane.changes] == ["n-1", "n-2"]


async def test_changes_are_bounded_and_the_oldest_give_way(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    plane.is_reachable = False
    for number in range(MAX_CHANGES + 500):
        reporter.add_change(change(number))
    await VirtualClock().sleep(10)
    plane.is_reachable = True
    await VirtualClock().sleep(60)
    told = [c.element_id for c in plane.changes]
    assert len(told) <= MAX_CHANGES
    assert told[-1] == f"n-{MAX_CHANGES + 499}"


async def test_the_load_of_a_lab_arrives_unchanged_also_if_it_must_be_reported_twice(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    stats = LabStats(
        worker_id=W1,
        lab_id="l",
        nodes={"n": NodeStats(cpu_usage=1.5)},
        links={"k": LinkStats(readbytes=7, drops=0)},
        collected_at=BEGINNING,
    )
    plane.is_reachable = False
    reporter.add_lab_stats(stats)
    await VirtualClock().sleep(2)
    plane.is_reachable = True
    await VirtualClock().sleep(60)
    [(_, reports)] = plane.requests
    assert msgspec.json.decode(msgspec.json.encode(reports), type=LiveReports).lab_stats == [stats]


async def test_a_request_never_grows_beyond_what_the_control_plane_takes(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    nodes = {f"node-{n:032}": NodeStats(cpu_usage=1.0, ram_usage=2.0, disk_usage=3.0) for n in range(200)}
    for number in range(200):
        reporter.add_lab_stats(
            LabStats(worker_id=W1, lab_id=f"l-{number}", nodes=nodes, links={}, collected_at=BEGINNING)
        )
    await VirtualClock().sleep(5)
    assert sum(len(reports.lab_stats) for _, reports in plane.requests) == 200
    assert max(len(msgspec.json.encode(reports)) for _, reports in plane.requests) < 1024 * 1024


async def test_a_refused_report_is_dropped_but_activity_is_kept(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    plane.error = RequestError("no")
    activity_log = ActivityLog(W1, "s", ReportedActivity(BEGINNING))
    activity_log.add(ActivityEvent(category="start_lab", at=BEGINNING), SampleSource.WEBSOCKET)
    reporter.add_activity(activity_log)
    reporter.add_change(change())
    await VirtualClock().sleep(5)
    plane.error = None
    await VirtualClock().sleep(40)
    assert (plane.changes, plane.categories, activity_log.is_confirmed) == ([], ["start_lab"], True)


async def test_the_newest_status_of_a_connection_is_reported_until_confirmed(
    reporter: LiveReporter, plane: CollectingControlPlane
) -> None:
    plane.is_reachable = False
    for state in (MonitorState.CONNECTED, MonitorState.RECONNECTING, MonitorState.FAILED):
        reporter.set_status(W1, WebSocketReport(connected=False, status=state))
        await VirtualClock().sleep(3)
    plane.is_reachable = True
    await VirtualClock().sleep(60)
    assert plane.states() == [MonitorState.FAILED]


async def test_a_newer_leader_ends_the_reporting() -> None:
    clock = VirtualClock()
    plane = CollectingControlPlane(clock, error=Fenced("a newer leader exists"))
    reporter = LiveReporter(plane, MonitoringConfig(), clock, Health(clock))

    async def tell() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reporter.run())
            await clock.sleep(0.1)
            reporter.add_change(change())

    assert isinstance(await first_error(tell()), Fenced)


async def test_a_control_plane_that_never_answers_is_no_silent_loop(plane: CollectingControlPlane) -> None:
    clock = VirtualClock()
    health = Health(clock)
    plane.is_reachable = False
    reporter = LiveReporter(plane, MonitoringConfig(), clock, health)
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(reporter.run())
        await clock.sleep(0.1)
        reporter.set_status(W1, WebSocketReport(connected=True, status=MonitorState.CONNECTED))
        for _ in range(50):
            reporter.add_change(change())
            await clock.sleep(10)
            assert health.silent_loops == []
        life.cancel()
