"""Bugs in launching, stopping, leading and publishing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.commands import create_worker
from lcm.control_plane.records.collection import Collection
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence
from lcm.control_plane.streaming.hub import EventHub
from lcm.core import election
from lcm.core.election import ClaimEpoch, Election, Lead, Leadership
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv, _Lease
from lcm.core.kv.port import LeaseId
from lcm.core.loop import ReconcileLoop
from lcm.core.results import ReconciliationResult, Requeue
from lcm.core.timeouts import timeout
from lcm.core.work_queue import WorkQueue
from lcm.domain import transitions
from lcm.domain.errors import LcmError
from lcm.domain.lifecycle import PROVISIONING, TERMINATED, TERMINATING
from lcm.domain.observation import Absent, Misses, Observation
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller import reconciler as controller
from lcm.worker_controller.decisions import Decision, Move, Situation
from lcm.worker_controller.instances.launcher import Launcher
from lcm.worker_controller.instances.observer import InstanceObserver
from simulation.planted.base import planted, swapped, swapped_in
from simulation.world.ports import SimulatedCloud, SimulatedStore


@planted
def no_client_token() -> Iterator[None]:
    original = SimulatedCloud.launch_instance

    async def launch(self: SimulatedCloud, spec: Any, client_token: str) -> Instance:
        fresh = f"{client_token}-{len(self._world.cloud.instances)}"
        return await original(self, spec, fresh)

    yield from swapped(SimulatedCloud, "launch_instance", launch)


@planted
def launched_before_the_intent_is_stored() -> Iterator[None]:
    original = Launcher._record_intent

    async def promise(self: Launcher, worker: Worker) -> Worker:
        promised = await original(self, worker)
        assert promised.launch.intent is not None
        await self.control_plane.withdraw_launch_intent(promised, "forgotten")
        return promised

    yield from swapped(Launcher, "_record_intent", promise)


@planted
def not_found_means_gone() -> Iterator[None]:
    yield from swapped(Misses, "verdict", lambda self: Absent("not found"))


@planted
def an_error_means_gone() -> Iterator[None]:
    original = InstanceObserver._describe

    async def ask(self: InstanceObserver, worker: Worker) -> Instance | None:
        try:
            return await original(self, worker)
        except LcmError:
            return None

    with swapped_in(Misses, "verdict", lambda self: Absent("an error")):
        yield from swapped(InstanceObserver, "_describe", ask)


@planted
def the_epoch_is_not_checked() -> Iterator[None]:
    yield from swapped(MemoryStore, "_check_fence", lambda self, fence: None)


@planted
def a_late_clean_up_is_taken_for_a_cancellation() -> Iterator[None]:
    """As asyncio did before Python 3.11.3, in an election whose terms are not tasks of their own."""

    @asynccontextmanager
    async def mistaken(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        task = asyncio.current_task()
        assert task is not None
        was_cancelled = task.cancelling() > 0
        try:
            async with timeout(seconds) as bound:
                yield bound
        except TimeoutError:
            if bound.expired() and was_cancelled:
                raise asyncio.CancelledError from None
            raise

    async def run(self: Election, claim_epoch: ClaimEpoch, lead: Lead) -> None:
        while True:
            await self._term(claim_epoch, lead)
            self._resign.clear()
            await self.clock.sleep(min(1.0, self.config.retry_interval))

    with swapped_in(Election, "run", run):
        yield from swapped(election, "timeout", mistaken)


@planted
def the_lease_is_not_watched() -> Iterator[None]:
    async def hold(self: Any, kv: Any, lease: Any, leadership: Leadership) -> None:
        leadership.deadline = float("inf")
        while True:
            await self.clock.sleep(60)

    yield from swapped(Election, "_hold_lease", hold)


@planted
def compare_and_set_without_compare() -> Iterator[None]:
    async def replace(self: MemoryStore, document: Document, fence: Fence | None = None) -> None:
        self._check_fence(fence)
        self._save(document)

    yield from swapped(MemoryStore, "replace", replace)


@planted
def terminated_before_ec2_reports_it() -> Iterator[None]:
    def decide(situation: Situation) -> Decision:
        return Move(TERMINATED, "surely gone by now")

    steps = {**controller.STEPS, TERMINATING: decide}
    yield from swapped(controller, "STEPS", steps)


@planted
def running_is_believed_too_early() -> Iterator[None]:
    original = controller.STEPS[PROVISIONING]

    def decide(situation: Situation) -> Decision:
        decision = original(situation)
        return (
            Move(TERMINATED, "took too long", observed=True)
            if type(decision).__name__ == "Wait"
            else decision
        )

    yield from swapped(controller, "STEPS", {**controller.STEPS, PROVISIONING: decide})


@planted
def a_wait_is_a_busy_loop() -> Iterator[None]:
    def requeue_soon(self: Any, worker: Worker, reason: str) -> ReconciliationResult:
        self.scope.observer.invalidate(worker.id)
        return Requeue(reason, after_seconds=0.001)

    yield from swapped(controller.WorkerReconciler, "_requeue_soon", requeue_soon)


@planted
def acknowledged_before_it_is_written() -> Iterator[None]:
    async def replace(self: SimulatedStore, document: Document, fence: Fence | None = None) -> None:
        await self.get(document.kind, document.id)
        if document.kind != "worker" or document.version % 5:
            await original(self, document, fence)

    original = SimulatedStore.replace
    yield from swapped(SimulatedStore, "replace", replace)


@planted
def the_stream_drops_an_event() -> Iterator[None]:
    original = EventHub.publish

    def publish(self: EventHub, event_type: str, data: Any) -> None:
        if self._count % 7 == 6:
            self._count += 1
            return
        original(self, event_type, data)

    yield from swapped(EventHub, "publish", publish)


@planted
def any_transition_is_allowed() -> Iterator[None]:
    def decide(situation: Situation) -> Decision:
        return Move(PROVISIONING, "why not")

    steps = {**controller.STEPS, TERMINATED: decide, TERMINATING: decide}
    with swapped_in(controller, "STEPS", steps):
        yield from swapped(transitions, "is_allowed", lambda *_, **__: True)


@planted
def nothing_is_resynced() -> Iterator[None]:
    async def resync(self: Any, *, everything: bool = False) -> int:
        return 0

    async def behind(self: Publisher) -> None:
        self.is_behind = False

    with swapped_in(Publisher, "_publish_unpublished", behind):
        yield from swapped(ReconcileLoop, "resync", resync)


@planted
def effect_without_a_confirmed_record() -> Iterator[None]:
    async def verify(self: controller.WorkerReconciler, worker: Worker) -> Worker:
        return worker

    yield from swapped(controller.WorkerReconciler, "_verify", verify)


@planted
def the_deadline_is_not_checked_before_an_effect() -> Iterator[None]:
    yield from swapped(Election, "check", lambda self: None)


@planted
def not_listed_means_none() -> Iterator[None]:
    original = InstanceObserver.observe

    async def observe(self: InstanceObserver, worker: Worker) -> Observation[Instance]:
        listing = self._fresh_listing(worker)
        if listing is not None and worker.instance.id not in listing.by_id:
            return Absent("not in the list")
        return await original(self, worker)

    yield from swapped(InstanceObserver, "observe", observe)


@planted
def a_conflict_is_retried_without_reading_again() -> Iterator[None]:
    original = Collection.change

    async def change(self: Collection[Any], record_id: str, decide: Any, **options: Any) -> Any:
        read: list[Worker] = []

        def decide_once(now: Worker) -> Worker:
            read.append(now)
            decided: Worker = decide(read[0])
            return replace(decided, version=now.version)

        return await original(self, record_id, decide_once, **options)

    yield from swapped(Collection, "change", change)


@planted
def leases_are_numbered() -> Iterator[None]:
    async def grant_lease(self: MemoryKv, ttl_seconds: int) -> LeaseId:
        lease_id = LeaseId(len(self._leases) + self._revision + 1)
        self._leases[lease_id] = _Lease(ttl_seconds, self._clock.monotonic() + ttl_seconds)
        self._leases_changed.set()
        return lease_id

    yield from swapped(MemoryKv, "grant_lease", grant_lease)


@planted
def a_commit_without_confirmation_is_never_published() -> Iterator[None]:
    yield from swapped(EventHub, "on_worker_found", lambda self, worker: None)


@planted
def a_full_queue_forgets() -> Iterator[None]:
    """A dropped key counts as queued, and is never handed out."""
    original = WorkQueue.offer

    def offer(self: WorkQueue[str], key: str) -> bool:
        dropped = self.dropped
        is_new = original(self, key)
        if self.dropped > dropped:
            self._wanted.add(key)
        return is_new

    yield from swapped(WorkQueue, "offer", offer)


@planted
def a_creation_has_no_key() -> Iterator[None]:
    fresh = RandomIds(Random(0))
    yield from swapped(create_worker, "_keyed_id", lambda request: fresh.new_id())
