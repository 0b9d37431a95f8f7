"""Keeps one CML server reachable for every running instance, and none for the others.

Time advances in one place for all of them: `keep_time` advances the server whose next event is due, and
no other. A fleet of a thousand quiet servers costs nothing.
"""

import asyncio
import heapq
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from lcm.core.timeouts import timeout
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.server import CmlServer, Credentials, ServerOptions, is_cml_image
from lcm.simulator.cml.site import Site
from lcm.simulator.listing import InstanceListing, ListedInstance
from lcm.simulator.pace import Delays, Pace, steady_unix_time

BIND_RETRY_SECONDS: Final = 1.0
BACKLOG: Final = 16
"""Of each listener: there are two per worker."""
MIN_TICK_SECONDS: Final = 0.005
"""Events that are due within this time of each other are applied together."""


class Fleet:
    """Every CML server of the simulation."""

    def __init__(
        self,
        *,
        port: int,
        credentials: Credentials,
        pace: Pace,
        delays: Delays,
        directory: Path | None,
        server_options: ServerOptions,
        pool: LicensePool,
        clock: Callable[[], float] = steady_unix_time,
    ) -> None:
        self._port = port
        self._credentials = credentials
        self._pace = pace
        self._delays = delays
        self._directory = directory
        self._clock = clock
        self.server_options = server_options
        """The options of future servers."""
        self.pool = pool
        self._sites: dict[str, Site] = {}
        self._boots: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._listening: set[str] = set()
        self._changed = asyncio.Event()
        self._due: list[tuple[float, int, Site]] = []
        self._serial = 0
        self._wake = asyncio.Event()

    # State

    def now(self) -> float:
        return self._clock()

    def sites(self) -> list[Site]:
        return list(self._sites.values())

    def find(self, worker: str) -> Site:
        """The server with this instance id or address."""
        for site in self._sites.values():
            instance = site.server.instance
            if worker in (instance.id, instance.private_ip, instance.public_ip):
                return site
        raise Refused(404, f"there is no worker {worker}")

    async def until_listening(self, instance_ids: Collection[str]) -> None:
        """Wait until all of these can be reached."""
        while not self._listening.issuperset(instance_ids):
            self._changed.clear()
            await self._changed.wait()

    # Time

    async def keep_time(self) -> None:
        """Advance every server when its next event is due, until cancelled."""
        while True:
            now = self._clock()
            for site in self._take_due(now):
                site.server.advance(now)
                self.schedule(site)
            self._wake.clear()
            pause = max(MIN_TICK_SECONDS, self._due[0][0] - now) if self._due else None
            try:
                async with timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _take_due(self, now: float) -> list[Site]:
        due = []
        while self._due and self._due[0][0] <= now:
            at, _, site = heapq.heappop(self._due)
            if site.due_at == at:
                site.due_at = None
                due.append(site)
        return due

    def schedule(self, site: Site) -> None:
        """Advance a server at its next due time; call this after anything that may have changed that time."""
        site.patty.check()
        due_at = site.server.due_at() if site.is_powered else None
        if due_at == site.due_at:
            return
        site.due_at = due_at
        if due_at is not None:
            self._serial += 1
            heapq.heappush(self._due, (due_at, self._serial, site))
            if self._due[0][2] is site:
                self._wake.set()

    # Instances

    async def follow(self, listings: AsyncIterator[InstanceListing]) -> None:
        """Serve the running instances of each listing until the listings end or this is cancelled."""
        async with asyncio.TaskGroup() as boots:
            async for listing in listings:
                self._adjust(listing.instances, boots)

    def _adjust(self, instances: Iterable[ListedInstance], boots: asyncio.TaskGroup) -> None:
        described = {i.id: i for i in instances if is_cml_image(i.image_name)}
        running = {(i.id, i.generation): i for i in described.values() if i.state == "running"}
        for boot in self._boots.keys() - running.keys():
            self._boots.pop(boot).cancel()
        for instance_id in self._sites.keys() - described.keys():
            del self._sites[instance_id]
        for boot, instance in running.items():
            if boot not in self._boots:
                self._boots[boot] = boots.create_task(self._serve(instance), name=f"cml-{boot[0]}")

    async def _serve(self, instance: ListedInstance) -> None:
        """Run one boot of one server, from power-on to cancellation."""
        site = self._site(instance)
        schedule = site.server.power_on(instance)
        try:
            await asyncio.sleep((instance.running_since or 0.0) + schedule.gateway_at - self._clock())
            site.is_powered = True
            self.schedule(site)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_listening(site))
                tasks.create_task(site.patty.run(_addresses(instance)))
        finally:
            site.is_powered = False
            self.schedule(site)

    async def _keep_listening(self, site: Site) -> None:
        while True:
            await site.until_open()
            await self._listen(site)

    async def _listen(self, site: Site) -> None:
        """Accept connections until the site is shut or the instance stops."""
        instance = site.server.instance
        listeners: list[asyncio.Server] = []
        try:
            for address in _addresses(instance):
                listeners.append(await self._bind(address, site))
            self._listening.add(instance.id)
            self._changed.set()
            await site.until_shut()
        finally:
            for listener in listeners:
                listener.close()
            site.hang_up()
            self._listening.discard(instance.id)

    def _site(self, instance: ListedInstance) -> Site:
        """The server of an instance, with the certificate it has had since its first boot."""
        if instance.id not in self._sites:
            server = CmlServer(
                instance,
                credentials=self._credentials,
                pace=self._pace,
                delays=self._delays,
                secret=secrets.token_bytes(32),
                pool=self.pool,
                server_options=self.server_options,
            )
            self._sites[instance.id] = Site(
                server, directory=self._directory, clock=self._clock, settled=self.schedule
            )
        return self._sites[instance.id]

    async def _bind(self, address: str, site: Site) -> asyncio.Server:
        """Listen, and retry while another program holds the port: that affects one worker, not the fleet."""
        while True:
            try:
                return await asyncio.get_running_loop().create_server(
                    site.connection, host=address, port=self._port, ssl=site.tls, backlog=BACKLOG
                )
            except OSError as failure:
                print(f"simulator: cannot listen on {address}:{self._port}: {failure}", file=sys.stderr)
                await asyncio.sleep(BIND_RETRY_SECONDS)


def _addresses(instance: ListedInstance) -> list[str]:
    return [address for address in (instance.private_ip, instance.public_ip) if address]
