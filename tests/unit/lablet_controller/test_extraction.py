"""PAUSE_EXTRACT_CONFIGS: a stop waits, a bounded time, until configurations of nodes are in their labs."""

import asyncio
import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.extract_configs import report_configs
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.store.port import Fence
from lcm.control_plane.streaming.event_names import WorkerEvent, event_of
from lcm.domain.idle import PAUSE_EXPIRES_AFTER, IdlePolicy
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPING, DesiredStatus, WorkerStatus
from lcm.domain.pause import Extraction
from lcm.domain.requests import pause_idle
from lcm.rest.lab_reports import ConfigsExtracted
from lcm.rest.schemas import WORKER_CONTROLLER, LeadershipClaim, StatusReport
from lcm.simulator.cml.lab import Lab
from support.control_plane import ONE_REGION
from support.lab_strangers import DiscoveryBench

WITHIN = timedelta(seconds=60)


class ExtractionBench(DiscoveryBench):
    """A worker with a lab of a person that runs; this test is its worker controller."""

    def __init__(self, within: timedelta | None = WITHIN) -> None:
        super().__init__(dataclasses.replace(ONE_REGION, idle=IdlePolicy(extract_within=within)))

    async def prepare(self) -> Lab:
        await self.open()
        claim = LeadershipClaim(service=WORKER_CONTROLLER, cluster_id="etcd", revision=1, instance_id="w")
        self.fence: Fence = fence_for(WORKER_CONTROLLER, (await claim_leadership(self.records, claim)).epoch)
        lab = self.make_lab("of a person")
        self.start_lab(lab)
        await self.clock.sleep(120)
        self.cml.labs.advance(self._moment())
        return lab

    async def request(self, action: str) -> None:
        answer = await self.operator.post(f"/api/workers/w1/{action}")
        assert answer.status == 202, answer.text

    async def report_stop(self) -> WorkerStatus:
        """What the worker controller reports as long as the worker is to be stopped."""
        report = StatusReport(
            status=STOPPING, reason="desired", expected_version=(await self.worker()).version
        )
        worker = await report_status(
            self.records, self.policies, "w1", report, by=WORKER_CONTROLLER, fence=self.fence
        )
        return worker.status

    async def extraction(self) -> Extraction:
        extraction = (await self.worker()).pause.extraction
        assert extraction is not None
        return extraction

    def configured(self, lab: Lab) -> int:
        """How many of its nodes have a configuration in the lab."""
        return sum(bool(node.configuration) for node in lab.nodes.values())


@pytest.fixture
async def bench() -> ExtractionBench:
    return ExtractionBench()


async def test_a_stop_waits_until_the_configurations_of_nodes_are_extracted(bench: ExtractionBench) -> None:
    lab = await bench.prepare()
    await bench.request("stop")
    assert await bench.report_stop() is RUNNING
    assert await bench.report_stop() is RUNNING
    assert bench.configured(lab) == 0
    waiting = await bench.worker()
    await bench.carry_out()
    assert bench.configured(lab) > 0
    assert event_of(waiting, await bench.worker()) is WorkerEvent.CONFIGS_EXTRACTED
    extraction = await bench.extraction()
    assert (extraction.extracted, extraction.missed) == (bench.configured(lab), 0)
    assert await bench.report_stop() is STOPPING
    reasons = [line.reason for line in (await bench.worker()).state_history]
    assert "configurations are extracted first, for 60 s at most" in reasons
    assert f"configurations extracted: {extraction.extracted}" in reasons


async def test_a_drained_worker_is_extracted_when_its_sessions_have_ended(bench: ExtractionBench) -> None:
    lab = await bench.prepare()
    await bench.request("drain")
    assert (await bench.worker()).pause.extraction is None
    assert await bench.report_stop() is DRAINING
    await bench.carry_out()
    assert bench.configured(lab) > 0
    assert await bench.report_stop() is STOPPING


async def test_a_stop_that_nobody_answers_goes_on_and_says_so(bench: ExtractionBench) -> None:
    await bench.prepare()
    await bench.request("stop")
    assert await bench.report_stop() is RUNNING
    await bench.clock.sleep(WITHIN.total_seconds() - 1)
    assert await bench.report_stop() is RUNNING
    await bench.clock.sleep(1)
    assert await bench.report_stop() is STOPPING
    assert (await bench.worker()).status_reason.endswith("configurations were not extracted in time")


async def test_without_the_setting_a_stop_waits_for_nothing() -> None:
    bench = ExtractionBench(within=None)
    await bench.prepare()
    await bench.request("stop")
    assert await bench.report_stop() is STOPPING
    assert (await bench.worker()).pause.extraction is None


async def test_a_cml_that_is_not_ready_is_not_waited_for(bench: ExtractionBench) -> None:
    await bench.prepare()
    await bench.change_worker(lambda worker: replace(worker, cml=replace(worker.cml, is_ready=False)))
    await bench.request("stop")
    assert await bench.report_stop() is STOPPING


async def test_nothing_is_extracted_any_more_when_the_worker_is_to_run_again(bench: ExtractionBench) -> None:
    lab = await bench.prepare()
    await bench.request("stop")
    await bench.report_stop()
    wanted = (await bench.requests.control_plane.get_lab_work()).configs_wanted
    await bench.request("start")
    assert (await bench.worker()).pause.extraction is None
    async with asyncio.TaskGroup() as tasks:
        bench.requests.extraction.begin(wanted, tasks)
    assert bench.configured(lab) == 0
    assert "extract_configuration" not in {name for name, _ in bench.labs.calls}


async def test_a_second_stop_extracts_anew(bench: ExtractionBench) -> None:
    await bench.prepare()
    await bench.request("stop")
    await bench.report_stop()
    await bench.carry_out()
    first = await bench.extraction()
    await bench.request("start")
    await bench.clock.sleep(1)
    await bench.request("stop")
    await bench.report_stop()
    assert (await bench.extraction()).asked_at > first.asked_at
    assert (await bench.extraction()).ended_at is None


@pytest.mark.parametrize("call", ["list_labs", "nodes", "extract_configuration", "report_configs"])
async def test_an_extraction_that_dies_with_its_process_is_repeated(
    bench: ExtractionBench, call: str
) -> None:
    lab = await bench.prepare()
    await bench.request("stop")
    await bench.report_stop()
    died = bench.die_once_after(call)
    await bench.carry_out(passes=1)
    assert died
    await bench.carry_out()
    assert bench.configured(lab) > 0
    assert (await bench.extraction()).ended_at is not None


async def test_a_node_that_hangs_does_not_delay_the_stop_beyond_its_limit(bench: ExtractionBench) -> None:
    await bench.prepare()
    bench.labs.is_extraction_hanging = True
    await bench.request("stop")
    await bench.report_stop()
    began = bench.clock.now()
    await bench.carry_out(passes=1)
    assert bench.clock.now() - began == WITHIN
    assert await bench.report_stop() is STOPPING


async def test_a_late_report_changes_nothing(bench: ExtractionBench) -> None:
    await bench.prepare()
    await bench.request("stop")
    await bench.report_stop()
    asked_at = (await bench.extraction()).asked_at
    earlier = asked_at - timedelta(seconds=1)
    for about, extracted in ((earlier, 1), (asked_at, 3), (asked_at, 7)):
        report = ConfigsExtracted(asked_at=about, extracted=extracted, missed=0)
        await report_configs(bench.records, "w1", report, by=WORKER_CONTROLLER, fence=bench.fence)
    assert (await bench.extraction()).extracted == 3


async def pause(bench: ExtractionBench) -> None:
    """What two idle checks that found the worker unused lead to."""
    now = bench.clock.now()
    await bench.change_worker(lambda worker: pause_idle(worker, by="idle", reason="unused", now=now))


async def test_a_pause_that_waits_for_configurations_is_not_overdue_by_that() -> None:
    bench = ExtractionBench(within=timedelta(minutes=5))
    await bench.prepare()
    await pause(bench)
    assert await bench.report_stop() is RUNNING
    await bench.clock.sleep(5 * 60)
    assert await bench.report_stop() is STOPPING


async def test_an_overdue_pause_is_cancelled_and_extracts_nothing(bench: ExtractionBench) -> None:
    await bench.prepare()
    await pause(bench)
    await bench.clock.sleep(PAUSE_EXPIRES_AFTER.total_seconds() + 1)
    assert await bench.report_stop() is RUNNING
    worker = await bench.worker()
    assert (worker.desired_status, worker.pause.extraction) == (DesiredStatus.RUNNING, None)


async def test_a_pause_is_overdue_when_its_stop_is_not_reported_after_the_extraction(
    bench: ExtractionBench,
) -> None:
    await bench.prepare()
    await pause(bench)
    await bench.report_stop()
    await bench.carry_out()
    await bench.clock.sleep(PAUSE_EXPIRES_AFTER.total_seconds() + 1)
    assert await bench.report_stop() is RUNNING
    assert (await bench.worker()).desired_status is DesiredStatus.RUNNING
