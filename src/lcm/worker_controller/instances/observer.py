"""Observations of instances: one listing per region serves a whole resync.

Turns answers into `Known`, `Absent` or `Unknown`. A missing instance is `Unknown` until enough complete
reads over enough time missed it. A worker that was just changed, or is waited for, is described on its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import structlog

from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.domain.errors import CredentialsRefused, LcmError
from lcm.domain.launch import WORKER_ID_TAG, InstanceId, WorkerId
from lcm.domain.lifecycle import DRAINING, PROVISIONING, RUNNING, STOPPING, UNKNOWN, DesiredStatus
from lcm.domain.observation import Absent, Known, Misses, Observation, Unknown
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.ports import CloudProvider

log = structlog.get_logger(__name__)

LISTING_MAX_AGE_SECONDS = 15.0
RECENT_SECONDS = 30.0
"""How long a read suffices at most to stop or start an instance: doing it twice does no harm."""
NEVER = float("-inf")


@dataclass(frozen=True)
class _Listing:
    """One complete list of a region."""

    by_id: dict[InstanceId, Instance]
    asked_at: float
    taken_at: datetime

    @cached_property
    def by_worker(self) -> dict[str, list[Instance]]:
        """By the worker tag; used only for workers whose instance is not known yet."""
        tagged: dict[str, list[Instance]] = {}
        for instance in self.by_id.values():
            tagged.setdefault(instance.tags.get(WORKER_ID_TAG, ""), []).append(instance)
        return tagged


class InstanceObserver:
    """Observes EC2 for the reconciler, for the time of one leadership."""

    def __init__(
        self, cloud: CloudProvider, clock: Clock, health: Health, *, poll_seconds: float = RECENT_SECONDS
    ) -> None:
        self._recent_seconds = min(poll_seconds, RECENT_SECONDS)
        self._cloud = cloud
        self._clock = clock
        self._health = health
        self._listings: dict[str, _Listing] = {}
        self._invalidated_at: dict[WorkerId, float] = {}
        self._misses: dict[tuple[WorkerId, str], Misses] = {}
        self._region_failures: dict[str, str] = {}
        self._waiting_for_region: dict[str, set[WorkerId]] = {}
        self.last_seen: dict[WorkerId, str] = {}
        """EC2 state by worker, for the metrics."""
        self._seen_at: dict[WorkerId, float] = {}
        """When that read began."""
        self._unconfirmed_states: dict[WorkerId, str] = {}

    async def refresh(self, regions: Iterable[str]) -> set[WorkerId]:
        """List each region once, for the resync that follows.

        Where that fails nothing is known until it succeeds again, so nothing is started, stopped,
        terminated or launched there. Returns the workers that waited for a region which is readable again.
        """
        wanted = sorted(set(regions))
        readable_again: set[WorkerId] = set()
        for region in self._region_failures.keys() - wanted:
            self._clear_region_failure(region)
        for region in wanted:
            asked_at = self._clock.monotonic()
            try:
                instances = await self._cloud.list_instances(region)
            except LcmError as error:
                self._record_region_failure(region, error)
                log.warning("instance listing failed", region=region, error=str(error))
                continue
            readable_again |= self._clear_region_failure(region)
            self._listings[region] = _Listing(
                {instance.id: instance for instance in instances}, asked_at, self._clock.now()
            )
        return readable_again

    def _record_region_failure(self, region: str, error: LcmError) -> None:
        self._listings.pop(region, None)
        self._region_failures[region] = str(error)
        self._health.freeze(f"EC2 {region}", str(error))

    def _clear_region_failure(self, region: str) -> set[WorkerId]:
        """Forget the failure of a region. Returns the workers that waited for it."""
        self._region_failures.pop(region, None)
        self._health.thaw(f"EC2 {region}")
        return self._waiting_for_region.pop(region, set())

    def _region_unreadable(self, worker: Worker) -> Unknown:
        self._waiting_for_region.setdefault(worker.aws_region, set()).add(worker.id)
        return Unknown(self._region_failures[worker.aws_region], is_failure=True)

    def invalidate(self, worker_id: WorkerId) -> None:
        """Observe this worker anew: earlier listings no longer count for it."""
        self._invalidated_at[worker_id] = self._clock.monotonic()

    @property
    def has_unreadable_region(self) -> bool:
        """Whether some region cannot be listed; only `refresh` clears that."""
        return bool(self._region_failures)

    def saw(self, worker: Worker, state: str) -> bool:
        """Whether the newest read, its own or its region's, is of the last poll interval and showed that."""
        if worker.instance.id is None or worker.aws_region in self._region_failures:
            return False
        seen, at = self.last_seen.get(worker.id), self._seen_at.get(worker.id, NEVER)
        listing = self._listings.get(worker.aws_region)
        if listing is not None and listing.asked_at > at and worker.instance.id in listing.by_id:
            seen, at = listing.by_id[worker.instance.id].state, listing.asked_at
        is_recent = self._clock.monotonic() - at <= self._recent_seconds
        return seen == state and is_recent and at > self._invalidated_at.get(worker.id, NEVER)

    def clear_region_failures(self) -> None:
        """Forget all failures at the end of a leadership."""
        for region in list(self._region_failures):
            self._clear_region_failure(region)

    def forget(self, worker_id: WorkerId) -> None:
        self._invalidated_at.pop(worker_id, None)
        self.last_seen.pop(worker_id, None)
        self._seen_at.pop(worker_id, None)
        self._unconfirmed_states.pop(worker_id, None)
        for waiting in self._waiting_for_region.values():
            waiting.discard(worker_id)
        for key in [key for key in self._misses if key[0] == worker_id]:
            del self._misses[key]

    def listed(self, worker: Worker) -> Instance | None:
        """The worker's instance in the last listing, if that still counts for this worker."""
        listing = self._fresh_listing(worker)
        if listing is None or worker.instance.id is None or worker.aws_region in self._region_failures:
            return None
        return listing.by_id.get(worker.instance.id)

    async def observe(self, worker: Worker) -> Observation[Instance]:
        """The worker's instance, by its id or, while that is not known, by the worker's tag."""
        has_unreadable_region = worker.aws_region in self._region_failures
        # Deleting a worker that was never launched needs no region listing; launching does.
        needs_no_listing = worker.desired_status is DesiredStatus.TERMINATED
        if not worker.may_have_instance and (needs_no_listing or not has_unreadable_region):
            return Absent("no launch was ever requested")
        if has_unreadable_region:
            return self._region_unreadable(worker)
        listing = self._fresh_listing(worker)
        if listing is not None:
            instance = _pick(worker, listing)
            if instance is not None:
                return self._found(worker, instance, listing.asked_at, listing.taken_at)
        # Not in the listing (or none is fresh): describe this one before concluding anything.
        asked_at = self._clock.monotonic()
        try:
            instance = await self._describe(worker)
        except CredentialsRefused as error:
            self._record_region_failure(worker.aws_region, error)
            return self._region_unreadable(worker)
        except LcmError as error:
            return Unknown(str(error), is_failure=True)
        if instance is None:
            return self._not_found(worker)
        return self._found(worker, instance, asked_at, self._clock.now())

    def _fresh_listing(self, worker: Worker) -> _Listing | None:
        listing = self._listings.get(worker.aws_region)
        if listing is None or self._clock.monotonic() - listing.asked_at > LISTING_MAX_AGE_SECONDS:
            return None
        if worker.refresh_requested_at is not None and listing.taken_at < worker.refresh_requested_at:
            return None  # a refresh was requested after it was taken
        return listing if listing.asked_at > self._invalidated_at.get(worker.id, NEVER) else None

    async def _describe(self, worker: Worker) -> Instance | None:
        if worker.instance.id is not None:
            return await self._cloud.describe_instance(worker.aws_region, worker.instance.id)
        return _launched_for(worker, await self._cloud.find_instances(worker.aws_region, worker.id))

    def _found(
        self, worker: Worker, instance: Instance, asked_at: float, taken_at: datetime
    ) -> Known[Instance] | Unknown:
        self._misses.pop(_identity(worker), None)
        self.last_seen[worker.id], self._seen_at[worker.id] = instance.state, asked_at
        if not _may_be_stale(worker, instance):
            self._unconfirmed_states.pop(worker.id, None)
        elif self._unconfirmed_states.get(worker.id) != instance.state:
            self._unconfirmed_states[worker.id] = instance.state
            self.invalidate(worker.id)
            return Unknown(f"EC2 reports {instance.state}; it counts once a second read confirms it")
        return Known(instance, taken_at)

    def _not_found(self, worker: Worker) -> Absent | Unknown:
        key, at = _identity(worker), self._clock.monotonic()
        self._misses[key] = self._misses[key].again(at) if key in self._misses else Misses.first(at)
        return self._misses[key].verdict()


def _may_be_stale(worker: Worker, instance: Instance) -> bool:
    """Whether EC2 may have answered with a past state: reporting a stop requires two reads."""
    if instance.state == "stopped":
        return worker.status in (PROVISIONING, RUNNING, DRAINING, STOPPING, UNKNOWN)
    return instance.state == "stopping" and worker.status in (RUNNING, DRAINING)


def _identity(worker: Worker) -> tuple[WorkerId, str]:
    """The launch that misses belong to: those of one launch prove nothing about the next."""
    return worker.id, worker.instance.id or f"launch-{worker.launch.generation}"


def _pick(worker: Worker, listing: _Listing) -> Instance | None:
    """The worker's instance: by its id, else by its tag."""
    if worker.instance.id is not None:
        return listing.by_id.get(worker.instance.id)
    return _launched_for(worker, listing.by_worker.get(worker.id, []))


def _launched_for(worker: Worker, tagged: Iterable[Instance]) -> Instance | None:
    """The live instance with the client token of its launch. A tag alone proves nothing: people copy them."""
    token = worker.launch.intent.client_token if worker.launch.intent else None
    return next((found for found in tagged if not found.is_gone and found.client_token == token), None)
