"""Leader election: the leader is the instance whose lease holds the key in the coordination store.

A lease is for liveness. Safety comes from two other things: the leader stops acting on its own
monotonic deadline, before the lease can have expired, and every write it makes carries an epoch that
the control plane checks (docs/adr/0005).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

import structlog

from lcm.core.backoff import Backoff
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.hosted_service import contains
from lcm.core.ids import Ids
from lcm.core.kv.port import ChangeKind, Kv, KvUnavailable, LeaseExpired, LeaseId
from lcm.core.timeouts import timeout
from lcm.core.tracing import begin

log = structlog.get_logger(__name__)

RETRY_SHARE = 0.2
"""After a renewal that failed, the part of the usual pause until the next one."""
ALONE = "alone-"
"""Begins the cluster id of an instance that leads without a coordination store."""
ALONE_SECONDS = 15.0
"""How long such an instance is taken to lead after it last claimed its epoch."""
CLAIM_RETRY_SECONDS = 10.0
"""However long the control plane was away, an epoch is claimed this often, to lead soon after its return."""


ClaimEpoch = Callable[["ElectionWin"], Awaitable[int]]
"""Turns a won election into an epoch; raises a fatal error if a newer leader exists."""
Lead = Callable[[], Awaitable[None]]
"""What a leader does; cancelled when the lead is lost."""


class LeadershipLost(Exception):
    """This process must not act any more."""


@dataclass(frozen=True, kw_only=True)
class LeaderElectionConfig:
    """Which key is contested under which name, and how long silence is tolerated."""

    election_key_prefix: str = "/elections"
    lease_ttl: int = 15
    retry_interval: float = 5.0
    instance_id: str = "auto"
    """Name of the candidate; `auto`: a unique one."""
    service_name: str = "service"
    call_timeout_seconds: float = 2.0
    resync_delay: float = 2.0
    """Seconds after the election until everything is reconciled once."""

    @property
    def key(self) -> str:
        return f"{self.election_key_prefix}/{self.service_name}/leader"

    @property
    def renew_every_seconds(self) -> float:
        return self.lease_ttl / 3

    @property
    def act_for_seconds(self) -> float:
        """How long after a renewal was sent the leader may still act: well before the lease can end."""
        return self.lease_ttl * 0.7


def _instance_name(configured: str, ids: Ids) -> str:
    """The name of an instance in elections: as configured, or for `auto` a unique one."""
    return configured if configured != "auto" else f"{socket.gethostname()}-{ids.new_id()[:8]}"


def timing_problems(lease_ttl: float, call_timeout_seconds: float) -> list[str]:
    """Why these two do not go together, in words for an operator; empty if they do.

    A leader must survive one renewal that got lost, and a call it sends at the very end of its time must be
    over before the lease can be.
    """
    config = LeaderElectionConfig(lease_ttl=int(lease_ttl))
    retry_seconds = config.renew_every_seconds * RETRY_SHARE
    lost_renewal_ends = config.renew_every_seconds + call_timeout_seconds + retry_seconds
    margin = lease_ttl - config.act_for_seconds
    problems = []
    if lost_renewal_ends >= config.act_for_seconds:
        problems.append(
            f"one renewal without an answer costs {lost_renewal_ends:.3g} s, and a leader has to stop after"
            f" {config.act_for_seconds:.3g} s"
        )
    if call_timeout_seconds > margin:
        problems.append(
            f"a call that is sent last may take {call_timeout_seconds:.3g} s, and the lease ends"
            f" {margin:.3g} s later"
        )
    return problems


@dataclass(frozen=True)
class ElectionWin:
    """The proof of a won election that an epoch is claimed with."""

    cluster_id: str
    revision: int
    """The create-revision of the election key: grows with every election of the same store."""
    instance_id: str


@dataclass
class Leadership:
    """The right to act, until the deadline."""

    win: ElectionWin
    epoch: int
    deadline: float
    _monotonic: Callable[[], float] = field(repr=False)

    @property
    def seconds_left(self) -> float:
        """How long it lasts without another renewal."""
        return max(0.0, self.deadline - self._monotonic())

    def check(self) -> None:
        """Call right before every effect. Raises LeadershipLost once the deadline has passed."""
        if self._monotonic() >= self.deadline:
            raise LeadershipLost("the lease could not be renewed in time")


class Election:
    """Leads while it holds the lease. Losing the lead cancels everything that runs under it, at once."""

    def __init__(
        self,
        config: LeaderElectionConfig,
        kv: Kv | None,
        *,
        clock: Clock,
        health: Health,
        trace_ids: Ids,
        fatal: tuple[type[Exception], ...] = (),
    ) -> None:
        """Without a coordination store this instance leads alone. `fatal` errors end a leadership."""
        self.config = replace(config, instance_id=_instance_name(config.instance_id, trace_ids))
        self.kv = kv
        self.clock = clock
        self.health = health
        self.leadership: Leadership | None = None
        self.leader_id: str | None = None
        """Who leads, as last read from the coordination store; None if no instance does."""
        self._trace_ids = trace_ids
        self._fatal: tuple[type[Exception], ...] = (LeadershipLost, *fatal)
        self._resign = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def epoch(self) -> int:
        """The epoch that writes carry; 0, which every fence refuses, without a leadership."""
        return self.leadership.epoch if self.leadership else 0

    def check(self) -> None:
        """Call right before every effect on the outside, which cannot be fenced. Raises LeadershipLost."""
        if self.leadership is None:
            raise LeadershipLost("not leading")
        self.leadership.check()

    def resign(self) -> None:
        """Step down after the current moment; another instance may take over at once."""
        self._resign.set()

    async def run(self, claim_epoch: ClaimEpoch, lead: Lead) -> None:
        """Campaign and lead, again and again, until cancelled."""
        while True:
            # A task of its own: a task group that fails while it is cancelled forgets the cancellation.
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._term(claim_epoch, lead), name="term")
            self._resign.clear()
            await self.clock.sleep(min(1.0, self.config.retry_interval))

    async def _term(self, claim_epoch: ClaimEpoch, lead: Lead) -> None:
        """Campaign once, and lead until the lead is lost."""
        try:
            if self.kv is None:
                await self._lead_alone(claim_epoch, lead)
            else:
                await self._campaign_and_lead(self.kv, claim_epoch, lead)
        except* (KvUnavailable, LeaseExpired, TimeoutError) as errors:
            self.health.freeze("coordination store", str(_first(errors)) or "no answer")
            log.warning("coordination store unreachable: not leading", error=repr(_first(errors)))
        except* self._fatal as errors:
            log.warning("leadership lost", reason=str(_first(errors)))

    async def _lead_alone(self, claim_epoch: ClaimEpoch, lead: Lead) -> None:
        """No coordination store is configured at all: a single instance leads at once."""
        win = ElectionWin(f"{ALONE}{self.config.instance_id}", 1, self.config.instance_id)
        leadership = Leadership(win, 0, float("inf"), self.clock.monotonic)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wait_for_resignation(), name="resignation")
            tasks.create_task(self._stay_known(leadership, claim_epoch), name="stay-known")
            tasks.create_task(self._lead(leadership, claim_epoch, lead), name="lead")

    async def _stay_known(self, leadership: Leadership, claim_epoch: ClaimEpoch) -> None:
        """Claim the epoch again and again: meanwhile no other instance is granted one without a store."""
        while True:
            await self.clock.sleep(ALONE_SECONDS / 3)
            if self.leadership is None:
                continue
            try:
                epoch = await claim_epoch(leadership.win)
            except Exception as error:
                if contains(error, self._fatal):
                    raise
                log.warning("epoch not claimed again", error=str(error))
                continue
            if epoch != leadership.epoch:
                raise LeadershipLost("another instance led meanwhile")

    async def _campaign_and_lead(self, kv: Kv, claim_epoch: ClaimEpoch, lead: Lead) -> None:
        async with self._won_election(kv) as (leadership, lease), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hold_lease(kv, lease, leadership), name="lease")
            tasks.create_task(self._wait_for_resignation(), name="resignation")
            tasks.create_task(self._lead(leadership, claim_epoch, lead), name="lead")

    @asynccontextmanager
    async def _won_election(self, kv: Kv) -> AsyncIterator[tuple[Leadership, LeaseId]]:
        """Wait until the key is ours; revoke the lease on the way out, so that a standby need not wait."""
        while True:
            await self._wait_until_vacant(kv)
            asked_at = self.clock.monotonic()
            async with timeout(self.config.call_timeout_seconds):
                lease = await kv.grant_lease(self.config.lease_ttl)
            try:
                async with timeout(self.config.call_timeout_seconds):
                    cluster_id = await kv.cluster_id()
                    revision = await kv.put_if_absent(
                        self.config.key, self.config.instance_id.encode(), lease
                    )
                if revision is not None:
                    self.health.thaw("coordination store")
                    win = ElectionWin(cluster_id, revision, self.config.instance_id)
                    deadline = asked_at + self.config.act_for_seconds
                    yield Leadership(win, 0, deadline, self.clock.monotonic), lease
                    return
            finally:
                await self._revoke(kv, lease)

    async def _wait_until_vacant(self, kv: Kv) -> None:
        """Watch the key as a standby, and read it every retry interval in case the watch is silent."""
        while True:
            async with timeout(self.config.call_timeout_seconds):
                listing = await kv.list_prefix(self.config.key)
            self.health.thaw("coordination store")
            holders = [item.value for item in listing.items if item.key == self.config.key]
            self.leader_id = holders[0].decode(errors="replace") if holders else None
            if not holders:
                return
            try:
                async with (
                    timeout(self.config.retry_interval),
                    aclosing(kv.watch_prefix(self.config.key, listing.revision + 1)) as changes,
                ):
                    async for change in changes:
                        if change.kind is ChangeKind.DELETE:
                            break
            except TimeoutError:
                continue

    async def _revoke(self, kv: Kv, lease: LeaseId) -> None:
        try:
            async with timeout(self.config.call_timeout_seconds):
                await kv.revoke_lease(lease)
        except (KvUnavailable, TimeoutError):
            log.info("lease not revoked; it will expire")

    async def _hold_lease(self, kv: Kv, lease: LeaseId, leadership: Leadership) -> None:
        """Renew until it fails for too long; then raise, which ends the leadership."""
        pause = self.config.renew_every_seconds
        while True:
            await self.clock.sleep(min(pause, leadership.deadline - self.clock.monotonic()))
            leadership.check()
            asked_at = self.clock.monotonic()
            try:
                async with timeout(min(self.config.call_timeout_seconds, leadership.deadline - asked_at)):
                    seconds_left = await kv.keep_alive(lease)
            except (KvUnavailable, TimeoutError) as error:
                log.warning("lease not renewed", error=repr(error))
                pause = self.config.renew_every_seconds * RETRY_SHARE
                continue
            if seconds_left <= 0:
                raise LeadershipLost("the lease is gone")
            leadership.deadline = asked_at + self.config.act_for_seconds
            pause = self.config.renew_every_seconds

    async def _wait_for_resignation(self) -> None:
        await self._resign.wait()
        raise LeadershipLost("resigned")

    async def _lead(self, leadership: Leadership, claim_epoch: ClaimEpoch, lead: Lead) -> None:
        try:
            leadership.epoch = await self._claim_epoch_patiently(leadership.win, claim_epoch)
        finally:
            self.health.thaw("epoch")
        self.leadership = leadership
        self.leader_id = self.config.instance_id
        begin(self._trace_ids, {"epoch": leadership.epoch})
        log.info("leadership acquired", key=self.config.key)
        try:
            await lead()
        finally:
            self.leadership = self.leader_id = None

    async def _claim_epoch_patiently(self, win: ElectionWin, claim_epoch: ClaimEpoch) -> int:
        """Without an epoch nothing can be written, so the claim is repeated until it is granted."""
        backoff, attempt = Backoff(max_seconds=CLAIM_RETRY_SECONDS), 0
        while True:
            try:
                return await claim_epoch(win)
            except Exception as error:
                if contains(error, self._fatal):
                    raise
                self.health.freeze("epoch", str(error) or type(error).__name__)
                log.warning("epoch not granted", error=str(error))
            await self.clock.sleep(backoff.delay_seconds(attempt))
            attempt += 1


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first real error inside a group of groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
