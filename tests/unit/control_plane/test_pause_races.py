"""A verdict and the stop that follows from it are one compare-and-set: what is committed before it wins."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

import pytest

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.detect_idle import detect_idle
from lcm.control_plane.commands.drain_worker import scale_down_worker
from lcm.control_plane.commands.hold_worker import hold_worker
from lcm.control_plane.commands.report_live import report_live
from lcm.control_plane.records.workers import KIND
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.core.ids import RandomIds
from lcm.domain.errors import Conflict
from lcm.domain.lifecycle import DRAINING, RUNNING, DesiredStatus
from lcm.domain.telemetry import ActivityEvent, SampleSource
from lcm.domain.worker import Worker
from lcm.rest.schemas import ActivityReport, IdleCheck, IdleCheckRequest, LeadershipClaim, LiveReports
from support.claims import place_session
from support.control_plane import control_plane_over
from support.core import a_worker
from support.virtual_time import VirtualClock

Write = Callable[[], Awaitable[object]]


class OvertakenStore(MemoryStore):
    """Commits another write first, once: the next change of a worker was decided on a record that is old."""

    def __init__(self) -> None:
        super().__init__()
        self.overtaking: Write | None = None

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        if document.kind == KIND and self.overtaking is not None:
            overtaking, self.overtaking = self.overtaking, None
            await overtaking()
        await super().replace(document, fence)


class Desk:
    """A control plane whose one worker was found unused at the first check; the next one takes it down."""

    def __init__(self) -> None:
        self.store = OvertakenStore()
        self.clock = VirtualClock()
        self.plane = control_plane_over(
            self.store,
            clock=self.clock,
            ids=RandomIds(Random(1)),
        )
        self.worker = a_worker(status=RUNNING, created_at=self.clock.now())
        self.fence = fence_for("worker-controller", 1)

    async def prepare(self) -> None:
        claim = LeadershipClaim(service="worker-controller", cluster_id="c", revision=1, instance_id="a")
        assert (await claim_leadership(self.plane.records, claim)).epoch == 1
        await self.plane.records.workers.add(self.worker)
        await self.clock.sleep(61 * 60)
        await self.check()
        await self.clock.sleep(15)

    async def check(self, *, suppress_auto_pause: bool = False) -> IdleCheck:
        request = IdleCheckRequest(
            raw_telemetry_events=[], force_check=True, suppress_auto_pause=suppress_auto_pause
        )
        return await detect_idle(
            self.plane.records,
            self.plane.caches,
            self.plane.policies,
            self.worker.id,
            request,
            fence=self.fence,
        )

    async def scale_down(self) -> Worker:
        return await scale_down_worker(
            self.plane.records,
            self.plane.caches,
            self.plane.policies,
            self.worker.id,
            by="worker-controller",
            fence=self.fence,
        )

    async def current(self) -> Worker:
        return await self.plane.records.workers.get(self.worker.id)

    # What may come first.

    async def hold(self) -> None:
        until = self.clock.now() + timedelta(hours=2)
        await hold_worker(
            self.plane.records, self.plane.policies, self.worker.id, until=until, reason="exam", by="ada"
        )

    async def place(self) -> None:
        await place_session(self.plane.records, self.worker.id, "lablet-1")

    async def use(self) -> None:
        report = ActivityReport(
            worker_id=self.worker.id,
            activity_events=[ActivityEvent(category="start_lab", at=self.clock.now())],
            source=SampleSource.WEBSOCKET,
            stream="s",
            last_sequence=1,
        )
        await report_live(
            self.plane.records,
            self.plane.caches,
            self.plane.policies,
            LiveReports(activity=[report]),
            fence=self.fence,
        )


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.prepare()
    return desk


def kept_by(worker: Worker) -> list[str]:
    """What the record says for keeping the worker."""
    reasons = {"held": worker.hold, "active_sessions": worker.sessions, "active": worker.activity.last_at}
    return [guard for guard, reason in reasons.items() if reason]


FIRST = pytest.mark.parametrize(
    ("first", "guard"),
    [
        pytest.param(Desk.hold, "held", id="a hold"),
        pytest.param(Desk.place, "active_sessions", id="a session"),
        pytest.param(Desk.use, "active", id="an activity"),
    ],
)


@FIRST
async def test_what_is_committed_between_the_read_and_the_pause_keeps_the_worker(
    desk: Desk, first: Callable[[Desk], Awaitable[None]], guard: str
) -> None:
    desk.store.overtaking = lambda: first(desk)
    result = await desk.check()
    assert desk.store.overtaking is None
    assert (result.auto_pause_triggered, result.guard) == (False, guard)
    worker = await desk.current()
    assert (worker.status, worker.desired_status) == (RUNNING, DesiredStatus.RUNNING)
    assert kept_by(worker) == [guard]


@FIRST
async def test_what_is_committed_between_the_read_and_the_scale_down_keeps_the_worker(
    desk: Desk, first: Callable[[Desk], Awaitable[None]], guard: str
) -> None:
    await desk.check(suppress_auto_pause=True)
    desk.store.overtaking = lambda: first(desk)
    with pytest.raises(Conflict, match=f"cannot be drained: {guard}$"):
        await desk.scale_down()
    assert desk.store.overtaking is None
    worker = await desk.current()
    assert (worker.status, worker.desired_status) == (RUNNING, DesiredStatus.RUNNING)
    assert kept_by(worker) == [guard]


async def test_a_pause_that_nothing_overtakes_is_made(desk: Desk) -> None:
    assert (await desk.check()).auto_pause_triggered
    assert (await desk.current()).desired_status is DesiredStatus.STOPPED


async def test_a_scale_down_that_nothing_overtakes_is_made(desk: Desk) -> None:
    await desk.check(suppress_auto_pause=True)
    assert (await desk.scale_down()).status is DRAINING
