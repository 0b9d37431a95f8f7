"""Queues a registration for every worker that should have a license and has none (D-12).

Runs every few seconds and not only on a change: a token that is set later, or a crash right after it was set,
must not leave a worker without its license.
"""

import structlog

from lcm.control_plane.commands.license_worker import queue_due_licenses
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.domain.errors import RequestError

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 5.0


class AutoLicense(HostedService):
    """Reads nothing from the store while no worker waits for a license."""

    name = "auto-license"

    def __init__(self, records: Records, caches: Caches, health: Health) -> None:
        self._records = records
        self._caches = caches
        self._health = health

    async def run(self) -> None:
        while True:
            self._health.tick(self.name, INTERVAL_SECONDS)
            try:
                queued = await queue_due_licenses(self._records, self._caches)
                if queued:
                    log.info("license registrations queued", count=queued)
            except (StoreUnavailable, RequestError) as error:
                log.warning("license registrations not queued", error=str(error))
            await self._records.clock.sleep(INTERVAL_SECONDS)
