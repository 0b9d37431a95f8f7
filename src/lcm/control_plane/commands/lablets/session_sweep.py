"""Repairs sessions and claims every minute, whether or not a scheduler leads.

A crash may end a request between its writes, and a write may arrive after its request was given up. What is
left is found here: claims without a session, sessions without their claim, and ends that were only begun.
"""

import structlog

from lcm.control_plane.commands.lablets.archive_sessions import Archive, keep_lablet_records
from lcm.control_plane.commands.lablets.open_windows import move_windows
from lcm.control_plane.commands.lablets.sweep_claims import ClaimSweep
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.domain.errors import RequestError

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0


class SessionSweep(HostedService):
    """The scheduler moves windows on time; this does it a minute late while no scheduler does."""

    name = "session-sweep"

    def __init__(self, records: Records, caches: Caches, policies: Policies, health: Health) -> None:
        self._records = records
        self._stats = caches.session_stats
        self._policies = policies
        self._health = health
        self.claims = ClaimSweep(records, policies)
        self.archive = Archive(records)

    async def run(self) -> None:
        while True:
            self._health.tick(self.name, INTERVAL_SECONDS)
            try:
                await move_windows(self._records, self._policies, by="control plane")
                await self.claims.sweep()
                await keep_lablet_records(self._records, self._policies)
                await self.archive.run_pass()
                sessions = await self._records.sessions.list_all()
                self._stats.take_over(sessions)
                for session in sessions:
                    self._records.lab_times.learn(session)
            except (StoreUnavailable, RequestError) as error:
                log.warning("sessions not swept", error=str(error))
            await self._records.clock.sleep(INTERVAL_SECONDS)
