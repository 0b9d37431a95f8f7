"""The reconcile loop: many resources, a few at a time, each alone, failures with backoff.

Keys come from a resync, from the key watch or from an operator; they all go through one work queue. There is
no barrier between resyncs. A reconcile that waits long gives its slot to another key (its own key stays
excluded), so slow resources never delay the others. What to do with a resource is the `Reconciler`'s part.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar, assert_never

import structlog

from lcm.core.backoff import Backoff
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import contains, supervise
from lcm.core.results import ReconciliationResult, Requeue, Retry, Skip, Success
from lcm.core.telemetry import Durations, Telemetry
from lcm.core.tracing import begin
from lcm.core.work_queue import WorkQueue

log = structlog.get_logger(__name__)

T = TypeVar("T")

LIST_RETRY_SECONDS = 15.0
"""However long the records were away, they are asked for this often: work goes on soon after their return."""


@dataclass(frozen=True, kw_only=True)
class ReconciliationConfig:
    """How often, how many at once, how patient."""

    interval_seconds: float = 30.0
    initial_delay: float = 5.0
    polling_enabled: bool = True
    max_concurrent: int = 10
    backoff_base: float = 1.0
    max_backoff: float = 60.0
    backoff_multiplier: float = 2.0
    metric_prefix: str = "reconciliation"
    park_after_seconds: float = 0.005
    """A reconcile that has been waiting this long no longer counts against max_concurrent."""
    max_parked: int = 1_000
    """How many may wait like that at once."""
    queue_capacity: int = 100_000
    """How many resources may wait for their turn; more are left to the next poll."""


class ResourceStatus(StrEnum):
    """Where the loop stands with a resource."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(slots=True)
class ResourceState:
    """What the loop remembers about one resource; lost on restart, and that is fine."""

    resource_id: str
    status: ResourceStatus = ResourceStatus.PENDING
    retry_count: int = 0
    next_retry_at: datetime | None = None
    last_reconciled_at: datetime | None = None
    reason: str = ""
    """Why it is not converged; empty once it is."""
    settled: Hashable | None = None
    """What `settled_marker` said before the reconcile that found the resource converged."""
    started_at: float = float("-inf")
    """When the last reconcile began, on the monotonic clock."""
    ended_at: float = float("-inf")
    """When the last reconcile ended, on the monotonic clock."""
    failed_at: float = float("-inf")
    """When the last failure was, on the monotonic clock."""


@dataclass(frozen=True)
class Reconcile:
    """One that goes on at this moment."""

    resource_id: str
    seconds: float
    is_parked: bool
    """It waits for others and has given its place away."""


class Reconciler(ABC, Generic[T]):
    """What the resources are, and how to move one of them a step. The loop decides when."""

    fatal: tuple[type[Exception], ...] = ()
    """Errors that end the whole loop instead of one reconcile."""
    passing: tuple[type[Exception], ...] = ()
    """Errors that are expected to pass by themselves: retried without a stack trace in the log."""
    resource_label = "resource_id"
    """What a resource's id is called in log lines and on admin pages."""
    loop: "ReconcileLoop[T]"
    """The loop that runs it, which sets this."""

    @abstractmethod
    async def list_resources(self) -> Sequence[T]:
        """Every resource that may need work."""

    @abstractmethod
    async def fetch_single_resource(self, resource_id: str) -> T | None:
        """One resource as it is now; None if it is gone."""

    @abstractmethod
    async def reconcile_resource(self, resource: T) -> ReconciliationResult:
        """Move one resource one step towards its spec; safe at any time, any number of times."""

    @abstractmethod
    def resource_id(self, resource: T) -> str: ...

    def settled_marker(self, resource: T) -> Hashable | None:
        """All that a reconcile depends on. If it equals the marker from before the last reconcile, and that
        one found the resource converged, a resync skips it; None never skips."""
        return None

    def is_due(self, resource: T) -> bool:
        """Whether time alone makes a settled resource worth a reconcile."""
        return False

    def must_poll(self) -> bool:
        """Whether resources have to be listed even if polling is off."""
        return False

    def on_reconciled(self, resource_id: str, seconds: float) -> None:
        """Called after each reconcile of a resource that exists."""

    def on_forgotten(self, resource_id: str) -> None:
        """Called when a resource is gone: drop what is remembered about it."""


class ReconcileLoop(Generic[T]):
    """Polls, queues, reconciles."""

    def __init__(
        self,
        reconciler: Reconciler[T],
        config: ReconciliationConfig,
        *,
        clock: Clock,
        telemetry: Telemetry,
        health: Health,
    ) -> None:
        self.reconciler = reconciler
        reconciler.loop = self
        self.config = config
        self.clock = clock
        self.telemetry = telemetry
        self.health = health
        self.states: dict[str, ResourceState] = {}
        self.last_reconciliation: datetime | None = None
        self.queue: WorkQueue[str] = WorkQueue(clock, config.queue_capacity)
        self.backoff = Backoff(config.backoff_base, config.backoff_multiplier, config.max_backoff)
        self._listed: dict[str, T] = {}
        self._forgotten_at: dict[str, float] = {}
        self._dropped_before = 0
        self._working: dict[asyncio.Task[None], tuple[str, float]] = {}
        self._parked: set[asyncio.Task[None]] = set()
        self._all_slots_busy = asyncio.Event()
        self._totals: Counter[type[ReconciliationResult]] = Counter()
        self._duration: Durations | None = None

    async def run(self, is_watched: Callable[[], bool] = lambda: True) -> None:
        """Reconcile until cancelled. While changes are not watched, resources are polled in any case."""
        # Left over from an earlier run (an earlier leadership), which saw another state.
        self.queue = WorkQueue(self.clock, self.config.queue_capacity)
        self.states.clear()
        self._listed.clear()
        self._forgotten_at.clear()
        self._dropped_before = 0
        self._working.clear()
        self._parked.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.queue.release_due(), name="queue-timers")
                tasks.create_task(self._relieve(tasks), name="relieve")
                for _ in range(self.config.max_concurrent):
                    self._add_slot(tasks)
                tasks.create_task(
                    supervise(
                        lambda: self._poll_forever(is_watched),
                        name="poll",
                        clock=self.clock,
                        fatal=self.reconciler.fatal,
                    ),
                    name="poll",
                )
        finally:
            self.health.forget("poll")
            self.health.thaw("resource list")

    async def resync(self, *, everything: bool = False) -> int:
        """List and queue what may need work; `everything` includes settled and backed-off resources."""
        asked_at = self.clock.monotonic()
        resources = await self.reconciler.list_resources()
        if self._left_some_out():
            # Always in the same order, a full queue would leave out the same ones for ever.
            resources = sorted(resources, key=self._started_at)
        self._dropped_before = self.queue.dropped
        queued = 0
        states, id_of = self.states, self.reconciler.resource_id
        for resource in resources:
            resource_id = id_of(resource)
            state = states.get(resource_id)
            if state is None and self._forgotten_at.get(resource_id, float("-inf")) >= asked_at:
                continue  # it is gone, and only this list does not know it yet
            if not everything and state is not None and self._is_settled(state, resource):
                continue
            is_new = self.queue.offer(resource_id)
            if not is_new:
                if not everything:
                    continue
                self.queue.add(resource_id)
            if is_new and (state is None or (state.started_at < asked_at and state.ended_at <= asked_at)):
                self._listed[resource_id] = resource
            else:
                # Queued or reconciled since the list was requested: this copy may be older.
                self._listed.pop(resource_id, None)
            queued += 1
        self._forgotten_at = {key: at for key, at in self._forgotten_at.items() if at >= asked_at}
        return queued

    def _is_settled(self, state: ResourceState, resource: T) -> bool:
        settled, reconciler = state.settled, self.reconciler
        return (
            settled is not None
            and settled == reconciler.settled_marker(resource)
            and not reconciler.is_due(resource)
        )

    def _must_list(self) -> bool:
        return self.reconciler.must_poll() or self._left_some_out()

    def _left_some_out(self) -> bool:
        """Whether the queue was too full for a resource since the last resync began."""
        return self.queue.dropped > self._dropped_before

    def _started_at(self, resource: T) -> float:
        state = self.states.get(self.reconciler.resource_id(resource))
        return state.started_at if state else float("-inf")

    def trigger(self, resource_id: str) -> None:
        """Reconcile this one as soon as possible, whatever its backoff says."""
        self._listed.pop(resource_id, None)
        self.queue.add(resource_id)

    def wake(self, resource_id: str, after_seconds: float) -> None:
        """Reconcile this one after a delay: its record changed."""
        self._listed.pop(resource_id, None)
        self.queue.add_after(resource_id, after_seconds)

    def forget(self, resource_id: str) -> None:
        """Drop what is remembered about a resource that is gone."""
        self.states.pop(resource_id, None)
        self._listed.pop(resource_id, None)
        self._forgotten_at[resource_id] = self.clock.monotonic()
        self.reconciler.on_forgotten(resource_id)

    def in_progress(self) -> list[Reconcile]:
        """What is being worked on now, the longest first."""
        now = self.clock.monotonic()
        going_on = [
            Reconcile(resource_id, now - since, task in self._parked)
            for task, (resource_id, since) in self._working.items()
        ]
        return sorted(going_on, key=lambda reconcile: -reconcile.seconds)

    async def _poll_forever(self, is_watched: Callable[[], bool]) -> None:
        period = self.config.interval_seconds
        self.health.tick("poll", period + self.config.initial_delay)
        await self.clock.sleep(self.config.initial_delay)
        failures = 0
        while True:
            self.health.tick("poll", period)
            try:
                if self.config.polling_enabled or not is_watched() or self._must_list():
                    # After a time without records everything is due, whatever the failures meanwhile say.
                    await self.resync(everything=failures > 0)
                    self.last_reconciliation = self.clock.now()
                self.health.thaw("resource list")
                failures = 0
            except Exception as error:
                if contains(error, self.reconciler.fatal):
                    raise
                self.health.freeze("resource list", str(error) or type(error).__name__)
                log.warning("cannot list resources", error=str(error))
                delay = min(self.backoff.delay_seconds(failures), period, LIST_RETRY_SECONDS)
                await self.clock.sleep(delay)
                failures += 1
                continue
            await self.clock.sleep(period)

    def _add_slot(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._serve(), name="reconcile")

    async def _serve(self) -> None:
        """One slot: take a key, work on it, take the next; end if the slot was given away meanwhile."""
        me, most = asyncio.current_task(), self.config.max_concurrent
        assert me is not None
        while True:
            resource_id = await self.queue.get()
            self._working[me] = (resource_id, self.clock.monotonic())
            if len(self._working) - len(self._parked) >= most:
                self._all_slots_busy.set()
            try:
                await self._reconcile_one(resource_id)
            finally:
                self.queue.done(resource_id)
                del self._working[me]
            if me in self._parked:
                self._parked.discard(me)
                return

    def _busy_slots(self) -> int:
        return len(self._working) - len(self._parked)

    async def _relieve(self, tasks: asyncio.TaskGroup) -> None:
        """When every slot is taken and keys wait, let the ones that only wait give theirs away."""
        while True:
            if self._busy_slots() < self.config.max_concurrent:
                self._all_slots_busy.clear()
                await self._all_slots_busy.wait()
            await self.queue.until_ready()
            if self.queue.ready_count and self._busy_slots() >= self.config.max_concurrent:
                self._park_waiting(tasks)
            await self.clock.sleep(self.config.park_after_seconds)

    def _park_waiting(self, tasks: asyncio.TaskGroup) -> None:
        patience_ends = self.clock.monotonic() - self.config.park_after_seconds
        for task, (_, since) in list(self._working.items()):
            if since <= patience_ends and task not in self._parked:
                if len(self._parked) >= self.config.max_parked:
                    break
                self._parked.add(task)
                self._add_slot(tasks)

    async def _reconcile_one(self, resource_id: str) -> None:
        begin(self.telemetry.trace_ids, {self.reconciler.resource_label: resource_id})
        duration = self._duration or self._create_instruments()
        state = self.states.get(resource_id)
        if state is None:
            state = self.states[resource_id] = ResourceState(resource_id)
        state.status = ResourceStatus.IN_PROGRESS
        started = state.started_at = self.clock.monotonic()
        marker = None
        try:
            resource = self._listed.pop(resource_id, None) or await self.reconciler.fetch_single_resource(
                resource_id
            )
            if resource is None:
                self.forget(resource_id)
                return
            # Before the reconcile, not after: a change meanwhile is for the next one.
            marker = self.reconciler.settled_marker(resource)
            result = await self.reconciler.reconcile_resource(resource)
        except self.reconciler.fatal:
            raise
        except self.reconciler.passing as error:
            result = Retry(str(error))
        except Exception as error:
            if contains(error, self.reconciler.fatal):
                raise
            log.exception("reconcile failed")
            result = Retry(str(error) or type(error).__name__)
        self._apply(state, result, marker)
        self._totals[type(result)] += 1
        state.ended_at = self.clock.monotonic()
        seconds = state.ended_at - started
        duration.record(seconds)
        if resource_id in self.states:  # not forgotten meanwhile
            self.reconciler.on_reconciled(resource_id, seconds)

    def _apply(self, state: ResourceState, result: ReconciliationResult, marker: Hashable | None) -> None:
        """The one place where a result becomes the time of the next reconcile."""
        match result:
            case Success() | Skip():
                state.status = ResourceStatus.SUCCESS
                state.retry_count = 0
                state.next_retry_at = None
                state.last_reconciled_at = self.clock.now()
                state.reason = ""
                state.settled = marker
            case Requeue(reason, after):
                state.status = ResourceStatus.PENDING
                state.reason = reason
                if self.clock.monotonic() - state.failed_at >= self.config.max_backoff:
                    # Sooner, a resource that fails every second time would never back off.
                    state.retry_count = 0
                state.next_retry_at = None
                state.settled = None
                if after is not None:
                    self.queue.add_after(state.resource_id, after)
            case Retry(reason, at_least):
                delay = max(self.backoff.delay_seconds(state.retry_count), at_least)
                state.status = ResourceStatus.FAILED
                state.retry_count += 1
                state.failed_at = self.clock.monotonic()
                state.reason = reason
                state.next_retry_at = self.clock.now() + timedelta(seconds=delay)
                state.settled = None
                log.info("will retry", reason=reason, after_seconds=round(delay, 1))
                self.queue.add_after(state.resource_id, delay)
            case _:
                assert_never(result)

    def _create_instruments(self) -> Durations:
        """Called when there is something to measure for the first time."""
        prefix = self.config.metric_prefix
        self._duration = duration = self.telemetry.durations(
            f"{prefix}_reconcile_duration_seconds", "Time one reconcile took."
        )
        self.telemetry.counter(
            f"{prefix}_reconcile_total",
            "Reconciles by result.",
            lambda: [(count, {"result": kind.__name__.lower()}) for kind, count in self._totals.items()],
        )
        self.telemetry.gauge(
            f"{prefix}_active_reconciles",
            "Reconciles going on now.",
            lambda: [(len(self._working), {})],
        )
        self.telemetry.gauge(
            f"{prefix}_resources_pending",
            "Resources waiting for their turn.",
            lambda: [(len(self.queue), {})],
        )
        return duration
