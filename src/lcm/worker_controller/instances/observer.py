"""What EC2 says about workers: one listing per region feeds a whole cycle.

Turns answers into `Known`, `Absent` or `Unknown`. An instance that is not shown is `Unknown` until
enough complete reads over enough time missed it. A worker we have just changed, or are waiting for,
is looked at afresh.
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


@dataclass(frozen=True)
class _Listing:
    """One complete answer."""

    by_id: dict[InstanceId, Instance]
    asked_at: float
    taken_at: datetime

    @cached_property
    def by_worker(self) -> dict[str, list[Instance]]:
        """By the tag; only workers whose instance is not known yet are looked for like that."""
        tagged: dict[str, list[Instance]] = {}
        for instance in self.by_id.values():
            tagged.setdefault(instance.tags.get(WORKER_ID_TAG, ""), []).append(instance)
        return tagged


class InstanceObserver:
    """Looks at EC2 on behalf of the reconciler, for the time of one leadership."""

    def __init__(self, cloud: CloudProvider, clock: Clock, health: Health) -> None:
        self._cloud = cloud
        self._clock = clock
        self._health = health
        self._listings: dict[str, _Listing] = {}
        self._look_again_after: dict[WorkerId, float] = {}
        self._misses: dict[tuple[WorkerId, str], Misses] = {}
        self._blind_in: dict[str, str] = {}
        self._asked_while_blind: dict[str, set[WorkerId]] = {}
        self.last_seen: dict[WorkerId, str] = {}
        """EC2 state by worker, for the metrics."""
        self._seen_once: dict[WorkerId, str] = {}

    async def refresh(self, regions: Iterable[str]) -> set[WorkerId]:
        """List each region once, for the cycle that follows.

        Where that fails nothing is known about anything until it succeeds again, so nothing is
        started, stopped, terminated or launched there. Returns the workers that were asked about
        while their region was out of sight and can be looked at again.
        """
        wanted = sorted(set(regions))
        in_sight_again: set[WorkerId] = set()
        for region in self._blind_in.keys() - wanted:
            self._forget_blindness(region)
        for region in wanted:
            asked_at = self._clock.monotonic()
            try:
                instances = await self._cloud.list_instances(region)
            except LcmError as error:
                self._lose_sight(region, error)
                log.warning("cannot list instances", region=region, error=str(error))
                continue
            in_sight_again |= self._forget_blindness(region)
            self._listings[region] = _Listing(
                {instance.id: instance for instance in instances}, asked_at, self._clock.now()
            )
        return in_sight_again

    def _lose_sight(self, region: str, error: LcmError) -> None:
        self._listings.pop(region, None)
        self._blind_in[region] = str(error)
        self._health.freeze(f"EC2 {region}", str(error))

    def _forget_blindness(self, region: str) -> set[WorkerId]:
        """Nothing is missing there any more. Returns the workers that were asked about meanwhile."""
        self._blind_in.pop(region, None)
        self._health.thaw(f"EC2 {region}")
        return self._asked_while_blind.pop(region, set())

    def _out_of_sight(self, worker: Worker) -> Unknown:
        self._asked_while_blind.setdefault(worker.aws_region, set()).add(worker.id)
        return Unknown(self._blind_in[worker.aws_region], is_failure=True)

    def look_again(self, worker_id: WorkerId) -> None:
        """What was seen so far no longer counts for this worker."""
        self._look_again_after[worker_id] = self._clock.monotonic()

    @property
    def is_blind(self) -> bool:
        """Whether some region is out of sight; only `refresh` can win it back."""
        return bool(self._blind_in)

    def close_eyes(self) -> None:
        """The leadership is over: what cannot be seen is no longer missed here."""
        for region in list(self._blind_in):
            self._forget_blindness(region)

    def forget(self, worker_id: WorkerId) -> None:
        self._look_again_after.pop(worker_id, None)
        self.last_seen.pop(worker_id, None)
        self._seen_once.pop(worker_id, None)
        for waiting in self._asked_while_blind.values():
            waiting.discard(worker_id)
        for key in [key for key in self._misses if key[0] == worker_id]:
            del self._misses[key]

    def listed(self, worker: Worker) -> Instance | None:
        """The worker's instance as the last list shows it, if that list still counts for this worker."""
        listing = self._fresh_listing(worker)
        if listing is None or worker.ec2_instance_id is None or worker.aws_region in self._blind_in:
            return None
        return listing.by_id.get(worker.ec2_instance_id)

    async def observe(self, worker: Worker) -> Observation[Instance]:
        """The worker's instance, by its id or, while that is not known, by the worker's tag."""
        is_blind = worker.aws_region in self._blind_in
        # To delete what was never launched takes no sight; to launch does.
        needs_no_sight = worker.desired_status is DesiredStatus.TERMINATED
        if not worker.may_have_instance and (needs_no_sight or not is_blind):
            return Absent("no launch was ever asked for")
        if is_blind:
            return self._out_of_sight(worker)
        listing = self._fresh_listing(worker)
        if listing is not None:
            instance = _pick(worker, listing)
            if instance is not None:
                return self._seen(worker, instance, listing.taken_at)
        # Not in the listing (or none is fresh): ask about this one before concluding anything.
        try:
            instance = await self._ask(worker)
        except CredentialsRefused as error:
            self._lose_sight(worker.aws_region, error)
            return self._out_of_sight(worker)
        except LcmError as error:
            return Unknown(str(error), is_failure=True)
        return self._seen(worker, instance, self._clock.now()) if instance else self._missed(worker)

    def _fresh_listing(self, worker: Worker) -> _Listing | None:
        listing = self._listings.get(worker.aws_region)
        if listing is None or self._clock.monotonic() - listing.asked_at > LISTING_MAX_AGE_SECONDS:
            return None
        if worker.refresh_requested_at is not None and listing.taken_at < worker.refresh_requested_at:
            return None  # somebody wants to know what is true now
        return listing if listing.asked_at > self._look_again_after.get(worker.id, -1.0) else None

    async def _ask(self, worker: Worker) -> Instance | None:
        if worker.ec2_instance_id is not None:
            return await self._cloud.describe_instance(worker.aws_region, worker.ec2_instance_id)
        return _launched_for(worker, await self._cloud.find_instances(worker.aws_region, worker.id))

    def _seen(self, worker: Worker, instance: Instance, taken_at: datetime) -> Known[Instance] | Unknown:
        self._misses.pop(_identity(worker), None)
        self.last_seen[worker.id] = instance.state
        if not _could_be_the_past(worker, instance):
            self._seen_once.pop(worker.id, None)
        elif self._seen_once.get(worker.id) != instance.state:
            self._seen_once[worker.id] = instance.state
            self.look_again(worker.id)
            return Unknown(f"EC2 reports {instance.state}; it counts when a second look confirms it")
        return Known(instance, taken_at)

    def _missed(self, worker: Worker) -> Absent | Unknown:
        key, at = _identity(worker), self._clock.monotonic()
        self._misses[key] = self._misses[key].again(at) if key in self._misses else Misses.first(at)
        return self._misses[key].verdict()


def _could_be_the_past(worker: Worker, instance: Instance) -> bool:
    """EC2 sometimes answers with a state that is over: to call a worker stopped takes two looks."""
    if instance.state == "stopped":
        return worker.status in (PROVISIONING, RUNNING, DRAINING, STOPPING, UNKNOWN)
    return instance.state == "stopping" and worker.status in (RUNNING, DRAINING)


def _identity(worker: Worker) -> tuple[WorkerId, str]:
    """Misses of one launch say nothing about the next."""
    return worker.id, worker.ec2_instance_id or f"launch-{worker.launch_generation}"


def _pick(worker: Worker, listing: _Listing) -> Instance | None:
    """The instance that is this worker: by its id, else by its tag."""
    if worker.ec2_instance_id is not None:
        return listing.by_id.get(worker.ec2_instance_id)
    return _launched_for(worker, listing.by_worker.get(worker.id, []))


def _launched_for(worker: Worker, tagged: Iterable[Instance]) -> Instance | None:
    """The live one with its launch's token. A tag alone proves nothing: people copy them."""
    token = worker.launch.client_token if worker.launch else None
    return next((found for found in tagged if not found.is_gone and found.client_token == token), None)
