"""LCM's own starts and stops of labs do not keep a worker awake; those of people do."""

from datetime import datetime

import pytest

from lcm.domain.lablet.states import ENDED, RUNNING
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import ActivityEvent, SampleSource
from lcm.domain.worker import WorkerActivity
from lcm.rest.client import ControlPlaneClient
from lcm.rest.schemas import ActivityReport, LiveReports
from lcm.simulator.cml.lab import Lab
from support.lab_strangers import DiscoveryBench
from support.people import KEYS


@pytest.fixture
async def bench() -> DiscoveryBench:
    bench = DiscoveryBench()
    await bench.open()
    return bench


async def report(bench: DiscoveryBench, lab: Lab | None, *moments: datetime) -> WorkerActivity:
    """The worker controller observes starts of nodes of the lab."""
    epoch = [0]
    client = ControlPlaneClient(bench, KEYS.controller, "worker-controller", lambda: epoch[0])
    epoch[0] = await client.claim_leadership("etcd", 1, "w")
    before = (await bench.worker()).activity.mark
    lab_id = lab.id if lab is not None else None
    events = [
        ActivityEvent(category="queue_node", at=moment, lab_id=lab_id, element_id="n")
        for moment in moments or (bench.clock.now(),)
    ]
    sequence = (before.last_sequence if before is not None else 0) + len(events)
    activity = ActivityReport(
        worker_id=WorkerId("w1"),
        activity_events=events,
        source=SampleSource.WEBSOCKET,
        stream="s",
        last_sequence=sequence,
    )
    receipt = await client.report_worker_metrics(LiveReports(activity=[activity]))
    assert receipt.accepted == 1
    worker = await bench.worker()
    assert worker.activity.mark is not None
    assert worker.activity.mark.last_sequence == sequence
    return worker.activity


def only_lab(bench: DiscoveryBench) -> Lab:
    [lab] = bench.cml.labs.all()
    return lab


async def test_the_start_of_a_sessions_lab_is_no_activity(bench: DiscoveryBench) -> None:
    while not bench.titles() or (await bench.session()).lab is None:
        await bench.step()
    activity = await report(bench, only_lab(bench))
    assert (activity.last_at, activity.recent_events) == (None, ())
    assert activity.checked_at is not None


async def test_what_people_do_in_the_lab_of_a_running_session_is_activity(bench: DiscoveryBench) -> None:
    await bench.drive(RUNNING)
    await bench.clock.sleep(60)
    activity = await report(bench, only_lab(bench))
    assert activity.last_at == bench.clock.now()


async def test_the_stop_of_a_sessions_lab_is_no_activity_also_if_it_is_reported_late(
    bench: DiscoveryBench,
) -> None:
    await bench.drive(RUNNING)
    lab = only_lab(bench)
    await bench.clock.sleep(60)
    await bench.end()
    await bench.step()
    stopped_at = bench.clock.now()
    await bench.drive(*ENDED)
    assert (await report(bench, lab, stopped_at)).last_at is None


async def test_a_control_plane_that_was_restarted_knows_it_too(bench: DiscoveryBench) -> None:
    while not bench.titles() or (await bench.session()).lab is None:
        await bench.step()
    bench.restart()
    assert (await report(bench, only_lab(bench))).last_at is None


async def test_the_removal_of_a_lab_by_lcm_is_no_activity_and_other_work_of_people_is(
    bench: DiscoveryBench,
) -> None:
    lab, other = bench.make_lab("to be removed"), bench.make_lab("of a person")
    await bench.discover()
    await bench.admin.post(f"/api/workers/w1/labs/{lab.id}/remove", {"title": "to be removed"})
    assert (await report(bench, lab)).last_at is None
    await bench.clock.sleep(1)
    assert (await report(bench, other)).last_at == bench.clock.now()
    await bench.clock.sleep(1)
    assert (await report(bench, None)).last_at == bench.clock.now()


async def test_the_removal_of_a_lab_by_lcm_is_no_activity_if_it_is_reported_when_the_lab_is_gone(
    bench: DiscoveryBench,
) -> None:
    lab = bench.make_lab("to be removed")
    await bench.discover()
    used_at = bench.clock.now()
    await bench.clock.sleep(120)
    await bench.admin.post(f"/api/workers/w1/labs/{lab.id}/remove", {"title": "to be removed"})
    stopped_at = bench.clock.now()
    await bench.carry_out()
    assert await bench.records.labs.find("w1", lab.id) is None
    assert (await report(bench, lab, stopped_at)).last_at is None
    assert (await report(bench, lab, used_at)).last_at == used_at, "before the removal it was a person"
