"""Follows another control plane, so that what is reported there is known here a moment later.

The watch of the coordination store (`kv_watch.py`) reports changed records too, only later and without the
name of the event. Load, changes inside labs, epochs and idle checks come only through the feed. After every
gap all that is kept in memory is read again, and every stream is reset.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, assert_never

import msgspec
import structlog

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.records.idle_checks import CheckTimes
from lcm.control_plane.replication import feed
from lcm.control_plane.store.port import Fence, StoreUnavailable
from lcm.control_plane.streaming.hub import EventHub
from lcm.core.clock import Clock
from lcm.core.hosted_service import HostedService
from lcm.core.timeouts import timeout
from lcm.domain.errors import NotFound, Unreachable
from lcm.domain.lifecycle import TERMINATED

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 3 * feed.BEAT_SECONDS

OpenFeed = Callable[[str], AsyncGenerator[bytes, None]]
"""The lines of the feed at an address, for ever. Raises Unreachable when it ends or cannot be had."""


class FeedClient(HostedService):
    """Keeps what this plane remembers equal to what another one was told."""

    def __init__(
        self, address: str, open_feed: OpenFeed, plane: ControlPlane, hub: EventHub, clock: Clock
    ) -> None:
        self.name = f"peer {address}"
        self.address = address
        self.is_following = False
        self._open_feed = open_feed
        self._plane = plane
        self._hub = hub
        self._clock = clock
        plane.epochs.disconnected_peers.add(address)

    async def run(self) -> None:
        problem = ""
        while True:
            try:
                await self._follow()
            except (Unreachable, StoreUnavailable, TimeoutError) as error:
                if self.is_following or str(error) != problem:
                    log.warning("a control plane cannot be followed", peer=self.address, error=repr(error))
                problem = str(error)
            finally:
                self.is_following = False
                self._plane.epochs.disconnected_peers.add(self.address)
            await self._clock.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        async with aclosing(self._open_feed(self.address)) as lines:
            hello = feed.read_message(await _next(lines))
            if isinstance(hello, feed.Hello) and hello.boot == self._plane.news.boot:
                await self._stand_aside()
            await self._look_at_everything()
            self.is_following = True
            log.info("following a control plane", peer=self.address)
            while True:
                await self._take(await _next(lines))

    async def _stand_aside(self) -> None:
        """The address is our own: one list serves all planes."""
        self._plane.epochs.disconnected_peers.discard(self.address)
        self.is_following = True
        await asyncio.Event().wait()

    async def _look_at_everything(self) -> None:
        """What happened while nobody listened can be anything."""
        plane = self._plane
        known = plane.worker_cache.ids()
        workers = await plane.workers.list_all()
        for worker in workers:
            self._hub.on_worker_found(worker)
        for worker_id in sorted(set(known).difference(worker.id for worker in workers)):
            try:
                await plane.workers.get(worker_id)
            except NotFound:
                self._hub.on_worker_gone(worker_id)
        plane.labs.invalidate()
        plane.epochs.invalidate_all()
        plane.epochs.disconnected_peers.discard(self.address)
        self._hub.start_afresh("another control plane was out of reach for a moment")

    async def _take(self, line: bytes) -> None:
        try:
            told = feed.read_message(line)
        except msgspec.MsgspecError as error:
            log.warning("news of a control plane is not understood", peer=self.address, error=str(error))
            return
        if isinstance(told, feed.Lost):
            await self._look_at_everything()
            return
        with self._plane.news.suppress_echo():
            self._learn(told)

    def _learn(self, told: feed.FeedMessage) -> None:
        plane, hub = self._plane, self._hub
        match told:
            case feed.Committed(before, after):
                hub.on_peer_commit(before, after)
                if after.status is TERMINATED:
                    plane.labs.drop(after.id)
            case feed.LabChanged(changes, before, after, version):
                lab = after or before or changes[0]
                if after is None and changes:
                    plane.labs.note_deletion(changes[-1])
                if plane.labs.learn(lab.worker_id, lab.lab_id, version, after):
                    hub.on_lab_change(changes, before, after)
            case feed.Sampled(sample):
                plane.live.take_sample(sample)
            case feed.LabStatsCame(stats):
                plane.live.take_lab_stats(stats)
            case feed.TemplateChanged(change, template):
                hub.on_template(change, template)
            case feed.EpochGranted(kind, id, version):
                plane.epochs.learn(Fence(kind, id, version))
            case feed.IdleChecked(worker_id, last, then, is_unconfirmed):
                plane.idle_checks.learn(worker_id, CheckTimes(last, then), is_unconfirmed)
            case feed.Hello() | feed.Beat() | feed.Lost():
                pass
            case _:
                assert_never(told)


async def _next(lines: AsyncIterator[bytes]) -> bytes:
    async with timeout(SILENCE_SECONDS):
        return await anext(lines)
