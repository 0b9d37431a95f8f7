"""A simulated CML server over real TLS, without the simulated AWS around it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lcm.simulator.cml.fleet import Fleet
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.server import CmlServer, Credentials, ServerOptions
from lcm.simulator.cml.site import Site
from lcm.simulator.listing import InstanceListing, ListedInstance
from lcm.simulator.pace import Delays, Pace, steady_unix_time
from support.ports import reserve_port

ADMIN = Credentials("admin", "correct horse")
INSTANT = Delays(cml_boot_seconds=0.0, cml_gateway_seconds=0.0, cml_loading_seconds=0.0)
HOST = "127.64.77.1"


def instance(*, host: str = HOST, running_since: float = 0.0) -> ListedInstance:
    return ListedInstance(
        id="i-1",
        region="us-east-1",
        state="running",
        private_ip=host,
        public_ip=None,
        image_name="CML-2.9.1-20260415",
        image_id="ami-1",
        instance_type="m5zn.metal",
        tags={},
        running_since=running_since,
        generation=1,
    )


def simulated_cml(*, host: str = HOST, speed: float = 1.0, running_since: float = 0.0) -> CmlServer:
    """A server without sockets, ready, with no people on it."""
    listed = instance(host=host, running_since=running_since)
    server = CmlServer(
        listed,
        credentials=ADMIN,
        pace=Pace(seed=1, speed=speed),
        delays=INSTANT,
        secret=b"only this server's",
        pool=LicensePool("a-good-token", size=1),
        server_options=ServerOptions(people=False),
    )
    server.power_on(listed)
    return server


@asynccontextmanager
async def cml_over_tls(*, speed: float = 100.0, host: str = HOST) -> AsyncIterator[tuple[Site, int]]:
    """The site and its port."""
    port = reserve_port()
    fleet = Fleet(
        port=port,
        credentials=ADMIN,
        pace=Pace(seed=1, speed=speed),
        delays=INSTANT,
        directory=None,
        server_options=ServerOptions(people=False),
        pool=LicensePool("a-good-token", size=1),
    )

    async def one_listing() -> AsyncIterator[InstanceListing]:
        yield InstanceListing(version=1, instances=[instance(host=host, running_since=steady_unix_time())])

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(fleet.follow(one_listing())), tasks.create_task(fleet.keep_time())]
        try:
            await fleet.until_listening(["i-1"])
            yield fleet.find("i-1"), port
        finally:
            for task in running:
                task.cancel()
