"""Two control planes that follow each other: what is reported at one is known at the other in a moment."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.delete_worker import delete_worker
from lcm.control_plane.commands.keep_load_history import INTERVAL_SECONDS
from lcm.control_plane.commands.lablets.batches import create_batch
from lcm.control_plane.commands.lablets.change_definition import create_definition
from lcm.control_plane.commands.report_live import report_connection, report_live
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.main import ControlPlaneParts, assemble
from lcm.control_plane.queries.load_history import load_history
from lcm.control_plane.records.idle_checks import CheckTimes
from lcm.control_plane.records.load_history import LATE_SECONDS, kind_of
from lcm.control_plane.replication import feed
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.control_plane.streaming.encoding import EventFilter
from lcm.core.ids import RandomIds
from lcm.core.kv.port import Kv
from lcm.domain.errors import Fenced, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import PENDING, RUNNING, TERMINATED, TERMINATING
from lcm.domain.load_history import HistoryRange
from lcm.domain.telemetry import ActivityEvent, LabChange, LabStats, MonitorState, Sample, SampleSource
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import new_worker
from lcm.rest.schemas import ActivityReport, LeadershipClaim, LiveReports, StatusReport, WebSocketReport
from lcm.rest.system import ProcessReport
from support.control_plane import ONE_REGION
from support.core import Link, memory_kv, running, with_fields
from support.virtual_time import VirtualClock
from unit.domain.lablet.test_topology import BRANCH_OFFICE

SERVICE = "worker-controller"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
ADA = WorkerId("ada")
A_MOMENT = 0.2
"""Seconds within which everything but load is known everywhere; load takes a second more, for its batch."""

TEMPLATE: Any = {
    "name": "tiny",
    "instance_type": "t3.micro",
    "cpu": 1,
    "memory_gb": 1,
    "disk_gb": 1,
    "max_nodes": 1,
    "usd_per_hour": 0.01,
    "description": "",
}

clock = VirtualClock()


class Stream:
    """What a browser at one of them receives."""

    def __init__(self, plane: ControlPlaneParts) -> None:
        self._plane = plane
        self.events: list[tuple[str, Any]] = []

    async def follow(self) -> None:
        async for chunk in self._plane.hub.stream(None, EventFilter(is_batched=True)):
            for event in chunk.decode().strip().split("\n\n"):
                fields = dict(line.partition(": ")[::2] for line in event.splitlines())
                self.events.append((fields["event"], json.loads(fields["data"])))

    def of(self, kind: str) -> list[Any]:
        return [data for event, data in self.events if event == kind]


class Pair:
    """Both, on one store and one coordination store; the line between them can be cut."""

    def __init__(self) -> None:
        self.store, self.kv = MemoryStore(), memory_kv(clock)
        self.is_cut = False
        self.cut = asyncio.Event()
        self.there_link = Link(self.kv, clock)
        self.here = self._plane(1, self.kv, ("there",))
        self.there = self._plane(2, self.there_link, ("here", "there"))
        self.stream = Stream(self.there)

    def _plane(self, seed: int, kv: Kv, others: tuple[str, ...]) -> ControlPlaneParts:
        return assemble(
            self.store,
            kv,
            AccessKeys("viewer", "operator", "admin", "controller"),
            clock=clock,
            ids=RandomIds(Random(seed)),
            policies=ONE_REGION,
            secrets=SecretStore(self.store, SecretBox.of(bytes(32))),
            peers=others,
            open_feed=self.open_feed,
        )

    def restarted(self) -> ControlPlaneParts:
        """A control plane that knows only what is stored."""
        return self._plane(3, self.kv, ())

    async def open_feed(self, address: str) -> AsyncGenerator[bytes, None]:
        plane = self.here if address == "here" else self.there
        async for chunk in plane.plane.feed.stream():
            for line in chunk.splitlines():
                if self.is_cut:
                    raise Unreachable("cut")
                yield line

    async def lead(self, at: ControlPlaneParts, revision: int = 1) -> Fence:
        claim = LeadershipClaim(service=SERVICE, cluster_id="etcd", revision=revision, instance_id="a")
        return fence_for(SERVICE, (await claim_leadership(at.plane.records, claim)).epoch)

    async def report(self, fence: Fence, **reports: Any) -> None:
        await report_live(
            self.here.plane.records,
            self.here.plane.caches,
            self.here.plane.policies,
            LiveReports(**reports),
            fence=fence,
        )


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Both running, with a worker that runs, and a browser at the second one."""
    both = Pair()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(both.kv))
        for parts in (both.here, both.there):
            services = (parts.publisher, parts.kv_watch, *parts.feed_clients)
            await stack.enter_async_context(running(*services))
        worker = new_worker(
            worker_id=ADA, name=ADA, template_name="small", aws_region="us-east-1", tags={}, by="ann", now=T0
        )
        await both.here.plane.records.workers.add(
            with_fields(worker, status=RUNNING, ec2_instance_id=InstanceId("i-ada"))
        )
        await clock.sleep(2)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        listening = tasks.create_task(both.stream.follow())
        stack.callback(listening.cancel)
        await clock.sleep(1)
        both.stream.events.clear()
        yield both


def sample(seconds: float, cpu: float) -> Sample:
    return Sample(
        worker_id=ADA,
        collected_at=T0 + timedelta(seconds=seconds),
        source=SampleSource.WEBSOCKET,
        cpu_utilization=cpu,
    )


def lab_change(event: str) -> LabChange:
    return LabChange(
        worker_id=ADA, lab_id="l1", element_type="lab", element_id="l1", event=event, at=T0, data={}
    )


async def test_activity_reported_here_is_published_there_by_its_name_within_a_moment() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        at = T0 + timedelta(seconds=1)
        activity = ActivityReport(
            worker_id=ADA,
            activity_events=[ActivityEvent(category="start_lab", at=at)],
            source=SampleSource.WEBSOCKET,
            stream="s",
            last_sequence=1,
        )
        await both.report(fence, activity=[activity])
        await clock.sleep(A_MOMENT)
        [event] = both.stream.of("worker.activity.updated")
        assert event["last_activity_at"] == "2026-01-01T00:00:01Z"
        known = both.there.plane.caches.worker_cache.get(ADA)
        assert known is not None
        assert known.version == (await both.here.plane.records.workers.get(ADA)).version


async def test_a_connection_reported_here_is_published_there_once() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        report = WebSocketReport(connected=True, status=MonitorState.CONNECTED, connected_at=T0)
        for _ in range(2):
            await report_connection(both.here.plane.records, ADA, report, fence=fence)
        await clock.sleep(10)
        assert len(both.stream.of("worker.ws.connected")) == 1


async def test_load_reported_here_is_in_the_charts_and_on_the_streams_there() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        await both.report(fence, samples=[sample(1, 10.0), sample(2, 20.0)])
        await clock.sleep(A_MOMENT)
        assert [point.cpu_utilization for point in both.there.plane.caches.metrics.points_of(ADA)] == [
            10.0,
            20.0,
        ]
        await clock.sleep(1)
        [batch] = both.stream.of("worker.metrics.updated.batch")
        assert [event["cpu_utilization"] for event in batch["events"]] == [10.0, 20.0]


async def test_load_is_published_once_at_each_and_does_not_echo() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        stats = LabStats(worker_id=ADA, lab_id="l1", nodes={}, links={}, collected_at=T0)
        await both.report(fence, samples=[sample(1, 10.0)], lab_stats=[stats])
        await clock.sleep(30)
        for parts in (both.here, both.there):
            assert parts.hub.events["worker.metrics.updated"] == 1
            assert parts.hub.events["worker.lab.stats_updated"] == 1


async def cpus(parts: ControlPlaneParts, span: HistoryRange = HistoryRange.HOUR) -> list[float | None]:
    history = await load_history(parts.plane.records, ADA, span)
    return [point.cpu_utilization for point in history.points]


async def measure(both: Pair, fence: Fence, minutes: int) -> None:
    """A leader reports here what it measures."""
    for _ in range(6 * minutes):
        await both.report(fence, samples=[replace(sample(0, 40.0), collected_at=clock.now())])
        await clock.sleep(10)


async def test_the_load_of_days_is_the_same_at_both_and_survives_the_death_of_either() -> None:
    async with pair() as both:
        await measure(both, await both.lead(both.here), minutes=6)
        await clock.sleep(LATE_SECONDS)
        assert await cpus(both.there) == await cpus(both.here)
        await both.there.plane.records.load_histories.save()
        stored = await both.store.list_all(kind_of(HistoryRange.HOUR))
        await both.here.plane.records.load_histories.save()
        assert await both.store.list_all(kind_of(HistoryRange.HOUR)) == stored
        restarted = both.restarted()
        assert len(await cpus(restarted)) == 36


async def test_the_history_of_a_worker_that_is_purged_here_does_not_come_back_from_there() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        await measure(both, fence, minutes=6)
        await both.here.plane.records.load_histories.save()
        await measure(both, fence, minutes=1)
        await purge(both)
        async with running(both.there.load_history_keeper):
            await clock.sleep(INTERVAL_SECONDS)
        assert [await both.store.list_all(kind_of(span)) for span in HistoryRange] == [[], [], []]


async def test_a_lab_that_changes_here_has_changed_there() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        assert await both.there.plane.records.labs.of(ADA) == []
        for event in ("created", "STARTED"):
            await both.report(fence, lab_changes=[lab_change(event)])
        await clock.sleep(A_MOMENT)
        [lab] = await both.there.plane.records.labs.of(ADA)
        assert lab == (await both.here.plane.records.labs.of(ADA))[0]
        assert [event["event"] for event in both.stream.of("worker.lab.state_change")] == [
            "created",
            "STARTED",
        ]
        # Its next change may come to the other one, and is one compare-and-set.
        await report_live(
            both.there.plane.records,
            both.there.plane.caches,
            both.there.plane.policies,
            LiveReports(lab_changes=[lab_change("STOPPED")]),
            fence=fence,
        )
        await clock.sleep(A_MOMENT)
        assert await both.here.plane.records.labs.of(ADA) == await both.there.plane.records.labs.of(ADA)


async def test_a_late_report_there_of_a_lab_deleted_here_does_not_restore_it() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        await both.report(fence, lab_changes=[lab_change("STARTED")])
        deleted = replace(lab_change("deleted"), at=T0 + timedelta(seconds=20))
        await both.report(fence, lab_changes=[deleted])
        await clock.sleep(A_MOMENT)
        heard_at = T0 + timedelta(seconds=15)
        stats = LabStats(worker_id=ADA, lab_id="l1", nodes={}, links={}, collected_at=heard_at)
        await report_live(
            both.there.plane.records,
            both.there.plane.caches,
            both.there.plane.policies,
            LiveReports(lab_stats=[stats]),
            fence=fence,
        )
        assert await both.there.plane.records.labs.of(ADA) == []


async def test_labs_whose_instance_is_gone_are_removed_at_both_and_on_the_streams() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        assert await both.there.plane.records.labs.of(ADA) == []
        await both.report(fence, lab_changes=[lab_change("STARTED")])
        worker = await both.here.plane.records.workers.get(ADA)
        gone = StatusReport(status=PENDING, reason="gone", expected_version=worker.version)
        await report_status(
            both.here.plane.records, both.here.plane.policies, ADA, gone, by=SERVICE, fence=fence
        )
        await clock.sleep(A_MOMENT)
        assert await both.there.plane.records.labs.of(ADA) == []
        assert [event["status"] for event in both.stream.of("lab.status.updated")] == ["STARTED", "DELETED"]


async def test_an_epoch_claimed_here_fences_load_there_at_once() -> None:
    async with pair() as both:
        old = await both.lead(both.there)
        await report_live(
            both.there.plane.records,
            both.there.plane.caches,
            both.there.plane.policies,
            LiveReports(samples=[sample(1, 10.0)]),
            fence=old,
        )
        await both.lead(both.here, revision=2)
        await clock.sleep(A_MOMENT)
        with pytest.raises(Fenced):
            await report_live(
                both.there.plane.records,
                both.there.plane.caches,
                both.there.plane.policies,
                LiveReports(samples=[sample(2, 99.0)]),
                fence=old,
            )


async def test_while_the_feed_is_down_an_epoch_is_read_from_the_store() -> None:
    async with pair() as both:
        old = await both.lead(both.there)
        both.is_cut = True
        await clock.sleep(10)
        await both.lead(both.here, revision=2)
        with pytest.raises(Fenced):
            await report_live(
                both.there.plane.records,
                both.there.plane.caches,
                both.there.plane.policies,
                LiveReports(samples=[sample(2, 99.0)]),
                fence=old,
            )


async def test_a_process_that_reports_here_is_known_there() -> None:
    async with pair() as both:
        report = ProcessReport(
            service=SERVICE,
            instance_id="a",
            version="1.0",
            started_at=T0,
            loop_lag_seconds=0.0,
            frozen=(),
            silent_loops=(),
        )
        both.here.plane.caches.processes.note(report)
        await clock.sleep(A_MOMENT)
        for parts in (both.here, both.there):
            assert [known.report for known in parts.plane.caches.processes.now()] == [report]


async def test_an_idle_check_made_here_is_not_made_again_there() -> None:
    async with pair() as both:
        times = CheckTimes(T0, T0 + timedelta(minutes=5))
        both.here.plane.caches.idle_checks.note(ADA, times, is_unconfirmed=True)
        await clock.sleep(A_MOMENT)
        assert both.there.plane.caches.idle_checks.of(ADA) == times
        assert both.there.plane.caches.idle_checks.unconfirmed_since(ADA) == T0
        later = CheckTimes(T0 + timedelta(minutes=5), T0 + timedelta(minutes=10))
        both.there.plane.caches.idle_checks.note(ADA, later)  # now its CML answers
        await clock.sleep(A_MOMENT)
        assert both.here.plane.caches.idle_checks.unconfirmed_since(ADA) is None


async def test_definitions_classes_and_sessions_of_here_are_published_there_and_in_its_snapshots() -> None:
    async with pair() as both:
        plane = both.here.plane
        defined = await create_definition(plane.records, name="branch", lab_yaml=BRANCH_OFFICE, by="ann")
        batch = await create_batch(
            plane.records,
            plane.policies,
            defined.definition,
            name="class",
            owners=["bob"],
            by="ann",
            creator_id="ann",
            is_all_or_nothing=False,
        )
        await clock.sleep(A_MOMENT)
        [created] = both.stream.of("lablet.definition.created")
        assert created["definition"]["name"] == "branch"
        assert [event["batch_id"] for event in both.stream.of("lablet.batch.updated")] == [batch.id] * 2
        [session] = both.stream.of("lablet.session.created")
        assert [known.id for known in both.there.plane.caches.sessions] == [session["session_id"]]


async def test_a_template_that_changes_here_is_published_there() -> None:
    async with pair() as both:
        assert await both.here.plane.records.templates.seed({"worker_templates": [TEMPLATE]}) == 1
        await clock.sleep(A_MOMENT)
        assert [event["template"]["name"] for event in both.stream.of("worker.template.created")] == ["tiny"]


async def test_after_a_gap_everything_is_read_again_and_streams_are_reset() -> None:
    async with pair() as both:
        fence = await both.lead(both.here)
        await both.there.plane.records.labs.of(ADA)
        both.is_cut = True
        await clock.sleep(10)
        await both.report(fence, samples=[sample(1, 10.0)], lab_changes=[lab_change("created")])
        await clock.sleep(10)
        assert both.there.plane.caches.metrics.points_of(ADA) == []
        both.is_cut = False
        await clock.sleep(10)
        assert [point.cpu_utilization for point in both.there.plane.caches.metrics.points_of(ADA)] == [10.0]
        assert len(await both.there.plane.records.labs.of(ADA)) == 1
        assert [event["workers"] for event in both.stream.of("reset")][-1] == 1
        assert both.stream.of("worker.snapshot")[-1]["worker"]["id"] == ADA


async def end(both: Pair, *, force: bool = False) -> None:
    """Ann has the worker deleted at the first plane, its record stays."""
    fence, here = await both.lead(both.here), both.here.plane
    worker = await delete_worker(here.records, ADA, force=force, by="ann")
    for status in (TERMINATING, TERMINATED):
        report = StatusReport(status=status, reason="EC2 says so", expected_version=worker.version)
        worker = await report_status(here.records, here.policies, ADA, report, by=SERVICE, fence=fence)
        await clock.sleep(1)


async def purge(both: Pair) -> None:
    """Ann has the worker deleted at the first plane, record and all."""
    await end(both, force=True)


async def test_a_worker_that_was_purged_here_is_gone_there_although_its_termination_was_not_published() -> (
    None
):
    async with pair() as both:
        both.is_cut = True
        await clock.sleep(20)
        await purge(both)
        assert both.there.plane.caches.worker_cache.get(ADA) is None
        [event] = both.stream.of("worker.terminated")
        assert (event["worker_id"], event["worker"]["status"]) == (ADA, "terminated")


@pytest.mark.parametrize("end_it", [end, purge])
async def test_a_worker_that_ended_here_while_the_feed_was_down_is_gone_there_after_it(
    end_it: Callable[[Pair], Awaitable[None]],
) -> None:
    async with pair() as both:
        both.is_cut = True
        both.there_link.cut()
        await clock.sleep(20)
        await end_it(both)
        await clock.sleep(20)
        assert both.there.plane.caches.worker_cache.get(ADA) is not None
        both.is_cut = False
        await clock.sleep(10)
        assert both.there.plane.caches.worker_cache.get(ADA) is None
        assert [event["workers"] for event in both.stream.of("reset")][-1] == 0


async def test_a_worker_that_cannot_be_read_any_more_does_not_end_the_feed() -> None:
    async with pair() as both:
        both.is_cut = True
        await clock.sleep(20)
        worker = await both.here.plane.records.workers.get(ADA)
        await both.store.replace(Document("worker", ADA, worker.version + 1, b"torn", ("name:ada",)))
        both.is_cut = False
        await clock.sleep(10)
        assert all(client.is_following for client in both.there.feed_clients)
        assert both.there.plane.caches.worker_cache.get(ADA) is not None, "it is not gone"


async def test_a_worker_that_was_purged_here_while_the_watch_was_down_is_gone_there_after_it() -> None:
    async with pair() as both:
        both.is_cut = True
        both.there_link.cut()
        await clock.sleep(20)
        await purge(both)
        both.there_link.mend()
        await clock.sleep(10)
        assert both.there.plane.caches.worker_cache.get(ADA) is None
        assert len(both.stream.of("worker.terminated")) == 1


async def test_a_worker_that_is_made_again_under_the_id_of_a_purged_one_is_known_there() -> None:
    async with pair() as both:
        await purge(both)
        again = new_worker(
            worker_id=ADA,
            name=ADA,
            template_name="small",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=T0 + timedelta(minutes=1),
        )
        await both.here.plane.records.workers.add(again)
        await clock.sleep(A_MOMENT)
        known = both.there.plane.caches.worker_cache.get(ADA)
        assert known is not None
        assert known.version == 1


async def test_a_purge_is_published_once_where_its_commits_are_received() -> None:
    async with pair() as both:
        await purge(both)
        await clock.sleep(20)
        assert both.there.plane.caches.worker_cache.get(ADA) is None
        assert len(both.stream.of("worker.terminated")) == 1


async def test_a_follower_that_does_not_read_is_bounded_and_sent_lost(
    plane: ControlPlane,
) -> None:
    lines = plane.feed.stream()
    assert isinstance(feed.read_message(await anext(lines)), feed.Hello)
    change = feed.TemplateChanged("updated", WorkerTemplate(**TEMPLATE))
    for _ in range(feed.FOLLOWER_BYTES // 100):
        plane.feed.publish(change)
    received = [feed.read_message(line) for line in (await anext(lines)).splitlines()]
    assert isinstance(received[0], feed.Lost)
    await lines.aclose()
    assert plane.feed.subscriber_count == 0
