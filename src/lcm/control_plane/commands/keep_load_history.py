"""Stores the workers' load every few minutes, and removes the histories of workers that are no more."""

import asyncio
from typing import Final

import structlog

from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.store.port import StoreUnavailable, VersionConflict
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.timeouts import timeout

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 300.0
REMOVED_EVERY: Final = 12
"""Passes: what a crash left of a terminated worker is removed within an hour, and at the next start."""
LAST_SAVE_SECONDS: Final = 3.0


class LoadHistoryKeeper(HostedService):
    """An orderly stop loses nothing; a crash loses what was measured since the last pass."""

    name = "load-history"

    def __init__(self, records: Records, caches: Caches, health: Health) -> None:
        self._records = records
        self._worker_cache = caches.worker_cache
        self._health = health

    async def run(self) -> None:
        try:
            passes = 0
            while True:
                self._health.tick(self.name, INTERVAL_SECONDS)
                await self._run_pass(must_remove=passes % REMOVED_EVERY == 0)
                passes += 1
                await self._records.clock.sleep(INTERVAL_SECONDS)
        except asyncio.CancelledError:
            await self._save_last()
            raise

    async def _run_pass(self, *, must_remove: bool) -> None:
        try:
            await self._worker_cache.load()
            self._records.load_histories.retain(self._worker_cache.ids())
            await self._records.load_histories.save()
            if must_remove:
                await remove_ended(self._records)
        except (StoreUnavailable, VersionConflict) as error:
            log.warning("load history not kept; the next pass continues", error=str(error))

    async def _save_last(self) -> None:
        try:
            async with timeout(LAST_SAVE_SECONDS):
                await self._records.load_histories.save(with_unfinished=True)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("the last minutes of the load history are lost", error=str(error))


async def remove_ended(records: Records) -> None:
    """Remove every history whose worker is terminated or purged."""
    stored = await records.load_histories.stored_ids()
    # Read after the histories: a worker that is created meanwhile has none yet.
    lasting = {worker.id for worker in await records.workers.list_live()}
    for worker_id in stored:
        if worker_id not in lasting:
            await records.load_histories.remove(worker_id)
