"""Reports about running workers: cheap to take, safe to repeat, refused from an old leader."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.report_live import report_connection, report_live, request_lab_discovery
from lcm.control_plane.commands.report_status import report_status
from lcm.control_plane.records.labs import MAX_LABS_PER_WORKER
from lcm.control_plane.records.metrics_cache import POINTS
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.core.ids import RandomIds
from lcm.domain.errors import Fenced
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED, TERMINATING, WorkerStatus
from lcm.domain.telemetry import ActivityEvent, LabChange, LabStats, MonitorState, Sample, SampleSource
from lcm.domain.worker import Worker, new_worker
from lcm.rest.schemas import (
    ActivityReport,
    LeadershipClaim,
    LiveReceipt,
    LiveReports,
    StatusReport,
    WebSocketReport,
)
from support.control_plane import control_plane_over
from support.core import with_fields
from support.virtual_time import VirtualClock

SERVICE = "worker-controller"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_SAMPLE = T0 - timedelta(hours=3)


class CountingStore(MemoryStore):
    """Counts calls; can fail the next write after having made it, and every read of all labs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.loses_confirmations = False
        self.cannot_list_labs = False

    async def get(self, kind: str, document_id: str) -> Document | None:
        self.calls[f"get {kind}"] += 1
        return await super().get(kind, document_id)

    async def list_all(self, kind: str) -> Sequence[Document]:
        self.calls[f"list {kind}"] += 1
        if self.cannot_list_labs and kind == "lab":
            raise StoreUnavailable("no answer")
        return await super().list_all(kind)

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        self.calls[f"write {document.kind}"] += 1
        await super().insert(document, fence)
        self._confirm()

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        self.calls[f"write {document.kind}"] += 1
        await super().replace(document, fence)
        self._confirm()

    def _confirm(self) -> None:
        if self.loses_confirmations:
            raise StoreUnavailable("no confirmation")


def plane_over(store: MemoryStore) -> ControlPlane:
    return control_plane_over(
        store,
        clock=VirtualClock(),
        ids=RandomIds(Random(1)),
    )


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def plane(store: CountingStore) -> ControlPlane:
    return plane_over(store)


async def lead(plane: ControlPlane, revision: int = 1) -> Fence:
    claim = LeadershipClaim(service=SERVICE, cluster_id="etcd", revision=revision, instance_id="a")
    return fence_for(SERVICE, (await claim_leadership(plane.records, claim)).epoch)


async def add(plane: ControlPlane, name: str, status: WorkerStatus = RUNNING) -> Worker:
    worker = new_worker(
        worker_id=WorkerId(name),
        name=name,
        template_name="small",
        aws_region="us-east-1",
        tags={},
        by="ann",
        now=T0,
    )
    return await plane.records.workers.add(
        with_fields(worker, status=status, ec2_instance_id=InstanceId(f"i-{name}"))
    )


def sample(worker_id: str, seconds: float = 0, cpu: float = 50.0, **fields: object) -> Sample:
    values: dict[str, object] = {
        "worker_id": worker_id,
        "collected_at": FIRST_SAMPLE + timedelta(seconds=seconds),
        "source": SampleSource.WEBSOCKET,
        "cpu_utilization": cpu,
    }
    return Sample(**{**values, **fields})  # type: ignore[arg-type]


def change(worker_id: str, lab_id: str, event: str, element: str = "lab", seconds: float = 0) -> LabChange:
    return LabChange(
        worker_id=WorkerId(worker_id),
        lab_id=lab_id,
        element_type="lab" if element == "lab" else "node",
        element_id=lab_id if element == "lab" else element,
        event=event,
        at=T0 + timedelta(seconds=seconds),
    )


def activity(worker_id: str, seconds: float, last_sequence: int) -> ActivityReport:
    return ActivityReport(
        worker_id=WorkerId(worker_id),
        activity_events=[ActivityEvent(category="start_lab", at=T0 + timedelta(seconds=seconds))],
        source=SampleSource.WEBSOCKET,
        stream="run-1",
        last_sequence=last_sequence,
    )


async def test_all_reports_about_a_worker_are_one_commit_in_the_order_of_the_report(
    plane: ControlPlane, store: CountingStore
) -> None:
    """Each covers the earlier ones: in another order they would seem to be reported already."""
    await add(plane, "ada")
    fence = await lead(plane)
    store.calls.clear()
    reports = [activity("ada", seconds, last_sequence=seconds) for seconds in range(1, 9)]
    receipt = await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(activity=reports), fence=fence
    )
    assert receipt == LiveReceipt(accepted=8, dropped=0)
    assert store.calls["write worker"] == 1
    assert len((await plane.records.workers.get("ada")).activity.recent_events) == 8


# Samples.


async def test_a_batch_of_samples_costs_no_store_call_at_all(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(samples=[sample("ada")]), fence=fence
    )
    store.calls.clear()
    for second in range(1, 100):
        await report_live(
            plane.records,
            plane.caches,
            plane.policies,
            LiveReports(samples=[sample("ada", second)]),
            fence=fence,
        )
    assert store.calls == Counter()


async def test_reports_about_workers_that_are_unknown_or_stopped_are_dropped_and_counted(
    plane: ControlPlane,
) -> None:
    await add(plane, "ada")
    await add(plane, "resting", STOPPED)
    await add(plane, "gone", TERMINATED)
    fence = await lead(plane)
    names = ("ada", "resting", "gone", "never there")
    receipt = await report_live(
        plane.records,
        plane.caches,
        plane.policies,
        LiveReports(samples=[sample(name) for name in names]),
        fence=fence,
    )
    assert receipt == LiveReceipt(accepted=1, dropped=3)
    assert plane.caches.metrics.reports == {("sample", "accepted"): 1, ("sample", "dropped"): 3}
    assert plane.caches.metrics.worker_count == 1


async def test_the_newest_sample_of_each_source_and_the_last_sixty_points_are_kept(
    plane: ControlPlane,
) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    samples = [sample("ada", 10 * n, cpu=float(n)) for n in range(POINTS + 40)]
    await report_live(plane.records, plane.caches, plane.policies, LiveReports(samples=samples), fence=fence)
    rest = sample("ada", 10_000, cpu=7.0, source=SampleSource.REST, memory_utilization=3.0)
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(samples=[rest, samples[5]]), fence=fence
    )
    assert plane.caches.metrics.samples_of("ada") == [samples[-1], rest]
    points = plane.caches.metrics.points_of("ada")
    assert len(points) == POINTS
    assert [point.cpu_utilization for point in points] == [*(float(n) for n in range(41, 100)), 7.0]
    assert (points[-1].memory_utilization, points[-1].disk_utilization) == (3.0, None)
    assert points[-1].at == (FIRST_SAMPLE + timedelta(seconds=10_000)).timestamp()


async def test_samples_of_a_clock_that_was_ahead_do_not_hide_later_ones(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    ahead = sample("ada", cpu=5.0, collected_at=T0 + timedelta(hours=1))
    await report_live(plane.records, plane.caches, plane.policies, LiveReports(samples=[ahead]), fence=fence)
    await plane.records.clock.sleep(60)
    corrected = sample("ada", cpu=97.0, collected_at=T0 + timedelta(seconds=60))
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(samples=[corrected]), fence=fence
    )
    assert plane.caches.metrics.samples_of("ada") == [corrected]


async def test_cloudwatch_fills_the_chart_only_where_cml_is_silent(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    averages = [sample("ada", n, cpu=1.0, source=SampleSource.CLOUDWATCH) for n in (0, 30, 400)]
    await report_live(
        plane.records,
        plane.caches,
        plane.policies,
        LiveReports(samples=[averages[0], sample("ada", 10), *averages[1:]]),
        fence=fence,
    )
    assert [point.cpu_utilization for point in plane.caches.metrics.points_of("ada")] == [1.0, 50.0, 1.0]


async def test_what_is_live_ends_when_the_worker_stops_running(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(samples=[sample("ada")]), fence=fence
    )
    await plane.records.workers.change("ada", lambda worker: replace(worker, status=STOPPED))
    assert plane.caches.metrics.worker_count == 0
    assert plane.caches.metrics.points_of("ada") == []


async def test_another_number_of_labs_is_written_once(plane: ControlPlane, store: CountingStore) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    store.calls.clear()
    for second in range(5):
        await report_live(
            plane.records,
            plane.caches,
            plane.policies,
            LiveReports(samples=[sample("ada", second, labs_count=3)]),
            fence=fence,
        )
    assert (await plane.records.workers.get("ada")).cml.labs_count == 3
    assert store.calls["write worker"] == 1


# The fence.


async def test_an_older_leaders_reports_are_refused_and_change_nothing(plane: ControlPlane) -> None:
    await add(plane, "ada")
    old, new = await lead(plane, 1), await lead(plane, 2)
    everything = LiveReports(
        samples=[sample("ada")],
        lab_changes=[change("ada", "lab-1", "STARTED")],
        activity=[activity("ada", 1, 1)],
    )
    with pytest.raises(Fenced):
        await report_live(plane.records, plane.caches, plane.policies, everything, fence=old)
    with pytest.raises(Fenced):
        await report_live(
            plane.records,
            plane.caches,
            plane.policies,
            LiveReports(samples=[sample("ada")]),
            fence=fence_for("stranger", 1),
        )
    assert plane.caches.metrics.worker_count == 0
    assert await plane.records.labs.of("ada") == []
    await report_live(plane.records, plane.caches, plane.policies, everything, fence=new)


async def test_a_control_plane_that_was_restarted_knows_the_leader_from_its_store(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    restarted = plane_over(store)
    receipt = await report_live(
        restarted.records,
        restarted.caches,
        restarted.policies,
        LiveReports(samples=[sample("ada")]),
        fence=fence,
    )
    assert receipt.accepted == 1


async def test_an_epoch_whose_grant_was_not_confirmed_still_shuts_out_the_last(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    old = await lead(plane, 1)
    store.loses_confirmations = True
    with pytest.raises(StoreUnavailable):
        await lead(plane, 2)
    with pytest.raises(Fenced):
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(samples=[sample("ada")]), fence=old
        )


# Labs.


async def test_the_changes_of_one_lab_in_one_batch_are_one_write(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    changes = [change("ada", "lab-1", "STARTED")]
    changes += [change("ada", "lab-1", "BOOTED", f"n{n}") for n in range(20)]
    changes += [change("ada", "lab-2", "STARTED")]
    receipt = await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
    )
    assert receipt == LiveReceipt(accepted=22, dropped=0)
    assert store.calls["write lab"] == 2
    first, second = await plane.records.labs.of("ada")
    assert (first.state, len(first.nodes), second.lab_id) == ("STARTED", 20, "lab-2")
    assert first.discovery_wanted


async def test_the_load_of_an_unknown_lab_requests_a_discovery_of_that_lab_and_no_other(
    plane: ControlPlane, store: CountingStore
) -> None:
    before = await add(plane, "ada")
    fence = await lead(plane)
    created = change("ada", "known", "created")
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=[created]), fence=fence
    )
    published: list[tuple[Any, ...]] = []
    plane.records.labs.subscribe(lambda *change: published.append(change))
    stats = [
        LabStats(worker_id=before.id, lab_id=lab, nodes={}, links={}, collected_at=T0)
        for lab in ("known", "unknown")
    ]
    for _ in range(3):
        receipt = await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(lab_stats=stats), fence=fence
        )
        assert receipt == LiveReceipt(accepted=2, dropped=0)
    wanted = {lab.lab_id: lab.discovery_wanted for lab in await plane.records.labs.of("ada")}
    assert wanted == {"known": False, "unknown": True}
    assert store.calls["write lab"] == 2  # one each, however often it is reported
    [(changes, known, met)] = published
    assert (changes, known, met.lab_id) == ((), None, "unknown")
    assert (
        await plane.records.workers.get("ada")
    ).cml.lab_discovery_requested_at is None  # no sweep over all labs


async def test_reports_to_a_store_that_cannot_be_read_are_refused_whole(
    plane: ControlPlane, store: CountingStore
) -> None:
    """Nothing is begun that is never awaited: a warning fails the test."""
    worker = await add(plane, "ada")
    fence = await lead(plane)
    stats = LabStats(worker_id=worker.id, lab_id="unknown", nodes={}, links={}, collected_at=T0)
    reports = LiveReports(lab_changes=[change("ada", "lab-1", "STARTED")], lab_stats=[stats])
    plane.records.labs.invalidate()
    store.cannot_list_labs = True
    with pytest.raises(StoreUnavailable):
        await report_live(plane.records, plane.caches, plane.policies, reports, fence=fence)
    store.cannot_list_labs = False
    receipt = await report_live(plane.records, plane.caches, plane.policies, reports, fence=fence)
    assert receipt == LiveReceipt(accepted=2, dropped=0)


async def test_the_load_of_a_lab_on_a_stopped_worker_adds_no_lab(plane: ControlPlane) -> None:
    await add(plane, "ada", STOPPED)
    stats = LabStats(worker_id=WorkerId("ada"), lab_id="l", nodes={}, links={}, collected_at=T0)
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_stats=[stats]), fence=await lead(plane)
    )
    assert await plane.records.labs.of("ada") == []


async def test_a_late_report_of_a_deleted_lab_does_not_restore_it(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    for event, second in (("created", 1), ("deleted", 20)):
        changes = [change("ada", "lab-1", event, seconds=second)]
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
        )

    def load_at(second: float) -> LiveReports:
        at = T0 + timedelta(seconds=second)
        stats = LabStats(worker_id=WorkerId("ada"), lab_id="lab-1", nodes={}, links={}, collected_at=at)
        return LiveReports(lab_stats=[stats])

    await report_live(plane.records, plane.caches, plane.policies, load_at(15), fence=fence)
    assert await plane.records.labs.of("ada") == []
    await report_live(plane.records, plane.caches, plane.policies, load_at(25), fence=fence)
    assert [lab.discovery_wanted for lab in await plane.records.labs.of("ada")] == [True]


async def test_a_deleted_labs_record_is_gone(plane: ControlPlane, store: CountingStore) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    for event, second in (("created", 1), ("deleted", 2)):
        changes = [change("ada", "lab-1", event, seconds=second)]
        await report_live(
            plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
        )
    assert await plane.records.labs.of("ada") == []
    assert await store.list_all("lab") == []


async def test_labs_go_with_their_worker(plane: ControlPlane, store: CountingStore) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    changes = [change("ada", f"lab-{n}", "STARTED") for n in range(3)]
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
    )
    for status in (TERMINATING, TERMINATED):
        worker = await plane.records.workers.get("ada")
        report = StatusReport(status=status, reason="over", expected_version=worker.version)
        await report_status(plane.records, plane.policies, "ada", report, by=SERVICE, fence=fence)
    assert await store.list_all("lab") == []


async def test_labs_left_behind_by_a_crash_are_removed_when_records_are_read_again(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    await add(plane, "bob")
    fence = await lead(plane)
    changes = [change("ada", "lab-1", "STARTED"), change("bob", "lab-2", "STARTED")]
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
    )
    await plane.records.workers.change("ada", lambda worker: replace(worker, status=TERMINATED))
    restarted = plane_over(store)
    assert [lab.lab_id for lab in await restarted.records.labs.of("bob")] == ["lab-2"]
    assert [document.id for document in await store.list_all("lab")] == ["bob/lab-2"]


async def test_labs_of_a_replaced_instance_are_removed_also_if_none_was_read_since_the_start(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    changes = [change("ada", "lab-1", "STARTED")]
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
    )
    restarted = plane_over(store)
    worker = await restarted.records.workers.get("ada")
    gone = StatusReport(status=PENDING, reason="gone", expected_version=worker.version)
    await report_status(restarted.records, restarted.policies, "ada", gone, by=SERVICE, fence=fence)
    assert await store.list_all("lab") == []


async def test_a_worker_has_a_bounded_number_of_labs(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    changes = [change("ada", f"lab-{n}", "STARTED") for n in range(MAX_LABS_PER_WORKER)]
    await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=changes), fence=fence
    )
    one_more = [change("ada", "one too many", "STARTED"), change("ada", "x" * 101, "STARTED")]
    receipt = await report_live(
        plane.records, plane.caches, plane.policies, LiveReports(lab_changes=one_more), fence=fence
    )
    assert receipt == LiveReceipt(accepted=0, dropped=2)
    assert plane.records.labs.count == MAX_LABS_PER_WORKER


async def test_a_lab_write_without_a_confirmation_is_made_good_by_the_next(
    plane: ControlPlane, store: CountingStore
) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    reports = LiveReports(lab_changes=[change("ada", "lab-1", "STARTED")])
    store.loses_confirmations = True
    with pytest.raises(StoreUnavailable):
        await report_live(plane.records, plane.caches, plane.policies, reports, fence=fence)
    store.loses_confirmations = False
    assert (
        await report_live(plane.records, plane.caches, plane.policies, reports, fence=fence)
    ).accepted == 1
    more = LiveReports(lab_changes=[change("ada", "lab-1", "BOOTED", "n1", 2)])
    assert (await report_live(plane.records, plane.caches, plane.policies, more, fence=fence)).accepted == 1
    (lab,) = await plane.records.labs.of("ada")
    assert (lab.state, lab.nodes["n1"].state) == ("STARTED", "BOOTED")


# Signs of people, and the connection.


async def test_activity_that_is_reported_again_counts_once(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    for _ in range(2):
        reports = LiveReports(activity=[activity("ada", -5, 1), activity("never there", -5, 1)])
        assert await report_live(
            plane.records, plane.caches, plane.policies, reports, fence=fence
        ) == LiveReceipt(accepted=1, dropped=1)
    worker = await plane.records.workers.get("ada")
    assert worker.activity.last_at == T0 - timedelta(seconds=5)
    assert len(worker.activity.recent_events) == 1


async def test_activity_counts_while_the_worker_stops(plane: ControlPlane) -> None:
    await add(plane, "ada", WorkerStatus.STOPPING)
    fence = await lead(plane)
    await report_live(
        plane.records,
        plane.caches,
        plane.policies,
        LiveReports(activity=[activity("ada", -5, 1)]),
        fence=fence,
    )
    assert (await plane.records.workers.get("ada")).activity.last_at is not None


@pytest.mark.parametrize("is_purged", [False, True])
async def test_a_worker_that_just_ended_elsewhere_does_not_make_the_reports_about_others_fail(
    plane: ControlPlane, store: CountingStore, is_purged: bool
) -> None:
    await add(plane, "ada")
    await add(plane, "bob")
    fence = await lead(plane)
    await plane.caches.worker_cache.load()
    other = plane_over(store)
    ended = await other.records.workers.change("ada", lambda worker: replace(worker, status=TERMINATED))
    if is_purged:
        await other.records.workers.purge(ended)
    reports = LiveReports(
        samples=[sample("ada", labs_count=2)],
        lab_changes=[change("bob", "lab-1", "STARTED")],
        activity=[activity("ada", -5, 1)],
    )
    assert (await report_live(plane.records, plane.caches, plane.policies, reports, fence=fence)).dropped == 1
    assert [lab.state for lab in await plane.records.labs.of("bob")] == ["STARTED"]


async def test_the_connection_is_written_down(plane: ControlPlane) -> None:
    await add(plane, "ada")
    fence = await lead(plane)
    since = T0 + timedelta(seconds=3)
    report = WebSocketReport(connected=True, status=MonitorState.CONNECTED, connected_at=since)
    worker = await report_connection(plane.records, "ada", report, fence=fence)
    assert (worker.connection.is_connected, worker.connection.status, worker.connection.connected_at) == (
        True,
        MonitorState.CONNECTED,
        since,
    )
    assert (await report_connection(plane.records, "ada", report, fence=fence)).version == worker.version


async def test_a_report_that_contradicts_itself_is_no_connection(plane: ControlPlane) -> None:
    await add(plane, "ada")
    report = WebSocketReport(connected=False, status=MonitorState.CONNECTED)
    worker = await report_connection(plane.records, "ada", report, fence=await lead(plane))
    assert (worker.connection.is_connected, worker.connection.status) == (False, MonitorState.DISCONNECTED)


async def test_a_disconnect_of_a_terminated_worker_changes_nothing_and_is_accepted(
    plane: ControlPlane,
) -> None:
    """A refusal would be repeated without end, and delay the reports of every other worker."""
    worker = await add(plane, "ada", TERMINATED)
    goodbye = WebSocketReport(connected=False, status=MonitorState.DISCONNECTED, stream="s", sequence=2)
    assert await report_connection(plane.records, "ada", goodbye, fence=await lead(plane)) == worker


async def test_a_discovery_of_all_labs_can_be_requested(plane: ControlPlane) -> None:
    await add(plane, "ada")
    worker = await request_lab_discovery(plane.records, "ada", fence=await lead(plane))
    assert worker.cml.lab_discovery_requested_at is not None
