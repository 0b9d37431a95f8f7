"""Follows another control plane, so that what is reported there is known here a moment later.

The watch of the coordination store (`kv_watch.py`) reports changed records too, only later and without the
name of the event. Load, changes inside labs, epochs and idle checks come only through the feed. After every
gap all caches are filled again, and every event stream is reset.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol, assert_never

import msgspec
import structlog

from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.idle_checks import CheckTimes
from lcm.control_plane.replication import feed
from lcm.control_plane.store.port import Fence, StoreUnavailable
from lcm.core.hosted_service import HostedService
from lcm.core.timeouts import timeout
from lcm.domain.errors import NotFound, Unreachable
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.telemetry import LabChange, LabRecord
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 3 * feed.BEAT_SECONDS

OpenFeed = Callable[[str], AsyncGenerator[bytes, None]]
"""The lines of the feed at an address. Raises Unreachable when the feed ends or cannot be opened."""


class EventStream(Protocol):
    """What the feed reports to the browsers of this control plane."""

    def on_worker_found(self, worker: Worker) -> None: ...
    def on_worker_gone(self, worker_id: str) -> None: ...
    def on_peer_commit(self, before: Worker | None, after: Worker) -> None: ...
    def on_peer_session_commit(self, before: LabletSession | None, after: LabletSession) -> None: ...
    def on_sessions_unseen(self) -> None: ...
    def on_batch_commit(self, before: LabletBatch | None, after: LabletBatch) -> None: ...
    def on_definition_commit(self, before: StoredDefinition | None, after: StoredDefinition) -> None: ...
    def on_template(self, change: str, template: WorkerTemplate) -> None: ...
    def on_lab_change(
        self, changes: Sequence[LabChange], before: LabRecord | None, after: LabRecord | None
    ) -> None: ...
    def reset_all(self, reason: str) -> None: ...


class FeedClient(HostedService):
    """Keeps the caches of this control plane equal to those of one peer."""

    def __init__(
        self,
        address: str,
        open_feed: OpenFeed,
        *,
        own_feed: feed.Feed,
        records: Records,
        caches: Caches,
        events: EventStream,
    ) -> None:
        self.name = f"peer {address}"
        self.address = address
        self.is_following = False
        self._open_feed = open_feed
        self._own_feed = own_feed
        self._records = records
        self._caches = caches
        self._events = events
        records.epochs.disconnected_peers.add(address)

    async def run(self) -> None:
        problem = ""
        while True:
            try:
                await self._follow()
            except (Unreachable, StoreUnavailable, TimeoutError) as error:
                if self.is_following or str(error) != problem:
                    log.warning("replication feed lost", peer=self.address, error=repr(error))
                problem = str(error)
            finally:
                self.is_following = False
                self._records.epochs.disconnected_peers.add(self.address)
            await self._records.clock.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        async with aclosing(self._open_feed(self.address)) as lines:
            hello = feed.read_message(await _next(lines))
            if isinstance(hello, feed.Hello) and hello.boot == self._own_feed.boot:
                await self._stand_aside()
            await self._resync()
            self.is_following = True
            log.info("replication feed connected", peer=self.address)
            while True:
                await self._receive(await _next(lines))

    async def _stand_aside(self) -> None:
        """Wait without end: the address is this process's own, since all control planes share one list."""
        self._records.epochs.disconnected_peers.discard(self.address)
        self.is_following = True
        await asyncio.Event().wait()

    async def _resync(self) -> None:
        """Read everything again: anything may have happened while the feed was not followed."""
        records = self._records
        known = self._caches.worker_cache.ids()
        workers = await records.workers.list_live()
        for worker in workers:
            self._events.on_worker_found(worker)
        for worker_id in sorted(set(known).difference(worker.id for worker in workers)):
            try:
                self._events.on_worker_found(await records.workers.get(worker_id))
            except NotFound:
                self._events.on_worker_gone(worker_id)
            except msgspec.MsgspecError as error:
                log.error("worker record unreadable", worker_id=worker_id, error=str(error))
        records.labs.invalidate()
        self._caches.lab_owners.invalidate()
        self._caches.timelines.invalidate()
        records.epochs.invalidate_all()
        records.epochs.disconnected_peers.discard(self.address)
        self._events.on_sessions_unseen()
        self._events.reset_all("another control plane was out of reach for a moment")

    async def _receive(self, line: bytes) -> None:
        try:
            message = feed.read_message(line)
        except msgspec.MsgspecError as error:
            log.warning("replication message not understood", peer=self.address, error=str(error))
            return
        if isinstance(message, feed.Lost):
            await self._resync()
            return
        with self._own_feed.suppress_echo():
            self._apply(message)

    def _apply(self, message: feed.FeedMessage) -> None:
        records, caches = self._records, self._caches
        match message:
            case (
                feed.Committed()
                | feed.SessionCommitted()
                | feed.DefinitionCommitted()
                | feed.BatchCommitted()
                | feed.LabChanged()
                | feed.TemplateChanged()
            ):
                self._apply_commit(message)
            case feed.Sampled(sample):
                caches.metrics.take_sample(sample)
            case feed.LabStatsReported(stats):
                caches.metrics.take_lab_stats(stats)
            case feed.EpochGranted(kind, id, version):
                records.epochs.learn(Fence(kind, id, version))
            case feed.IdleChecked(worker_id, last, then, is_unconfirmed):
                caches.idle_checks.learn(worker_id, CheckTimes(last, then), is_unconfirmed)
            case feed.SchedulerHeard():
                records.scheduler.learn()
            case feed.ProcessReported(report):
                caches.processes.learn(report)
            case feed.Hello() | feed.Beat() | feed.Lost():
                pass
            case _:
                assert_never(message)

    def _apply_commit(
        self,
        message: feed.Committed
        | feed.SessionCommitted
        | feed.DefinitionCommitted
        | feed.BatchCommitted
        | feed.LabChanged
        | feed.TemplateChanged,
    ) -> None:
        labs, events = self._records.labs, self._events
        match message:
            case feed.Committed(before, after):
                events.on_peer_commit(before, after)
                self._caches.timelines.on_worker_commit(before, after)
                if after.status is TERMINATED:
                    labs.drop(after.id)
            case feed.SessionCommitted(earlier, later):
                self._caches.session_stats.learn(later)
                self._records.lab_times.on_session_commit(earlier, later)
                self._caches.lab_owners.learn(later)
                events.on_peer_session_commit(earlier, later)
            case feed.DefinitionCommitted(old, new):
                events.on_definition_commit(old, new)
            case feed.BatchCommitted(batch_before, batch):
                events.on_batch_commit(batch_before, batch)
            case feed.LabChanged(changes, before, after, version):
                lab = after or before or changes[0]
                if after is None and changes:
                    labs.note_deletion(changes[-1])
                if labs.learn(lab.worker_id, lab.lab_id, version, after):
                    events.on_lab_change(changes, before, after)
            case feed.TemplateChanged(change, template):
                events.on_template(change, template)


async def _next(lines: AsyncIterator[bytes]) -> bytes:
    async with timeout(SILENCE_SECONDS):
        return await anext(lines)
