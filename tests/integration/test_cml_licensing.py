"""CML's licensing on the wire: what a server reports, and how long a deregistration takes (A1, A4)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lcm.cml.connection import CmlConnections
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.sessions import CmlServer
from lcm.core.clock import SystemClock
from lcm.domain.errors import Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.license import LicenseTerms
from lcm.simulator.cml import faults
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.site import Site
from lcm.worker_controller.adapters.cml_licensing import DEREGISTRATION, CmlLicensingClient
from lcm.worker_controller.ports import POOL_NOT_NOTIFIED
from support.labs_over_tls import ADMIN, HOST, cml_over_tls

TOKEN = "a-good-token"


@asynccontextmanager
async def a_licensed_cml() -> AsyncIterator[tuple[Site, CmlLicensingClient, CmlServer]]:
    """Time passes 100 times as fast: a wait for Cisco takes a second, and other calls have half of one."""
    async with (
        cml_over_tls(speed=100.0) as (site, port),
        CmlConnections(port, 0.5) as connections,
    ):
        clock = SystemClock()
        session = CmlSession(
            connections, always(Credentials(ADMIN.username, ADMIN.password)), HOST, None, clock
        )
        cml = CmlLicensingClient(lambda server: session)
        server = CmlServer(WorkerId("w-1"), InstanceId("i-1"), HOST, None, None)
        assert await cml.register(server, TOKEN) == ""
        while not (await cml.state(server)).is_registered:
            await clock.sleep(0.02)
        yield site, cml, server


def pool_of(site: Site) -> LicensePool:
    return site.server.licensing.pool


async def test_a_deregistration_has_a_time_limit_of_its_own() -> None:
    """CML answers 202 after it tried to reach Cisco for a minute or two; other calls have seconds."""
    async with a_licensed_cml() as (site, cml, server):
        pool_of(site).is_reachable = False
        assert await cml.deregister(server, within_seconds=120.0) == POOL_NOT_NOTIFIED
        assert (await cml.state(server)).is_free
        assert len(pool_of(site).holders) == 1


async def test_a_deregistration_takes_effect_though_its_answer_was_not_awaited() -> None:
    async with a_licensed_cml() as (site, cml, server):
        pool_of(site).is_reachable = False
        with pytest.raises(Unreachable):
            await cml.deregister(server, within_seconds=0.1)
        assert not (await cml.state(server)).is_free
        clock = SystemClock()
        while not (await cml.state(server)).is_free:
            await clock.sleep(0.05)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_deregistration_whose_answer_is_lost_is_not_known_to_be_done(count: int) -> None:
    """A DELETE that is cut off is sent again by the HTTP client: CML has none any more, and says no more."""
    async with a_licensed_cml() as (site, cml, server):
        site.apply_fault(faults.Http(status=None, applied=True, path=DEREGISTRATION, count=count))
        outcome = ""
        try:
            outcome = await cml.deregister(server, within_seconds=120.0)
        except Unreachable as error:
            outcome = str(error)
        assert outcome
        assert outcome != POOL_NOT_NOTIFIED
        assert (await cml.state(server)).is_free


async def test_a_registration_is_replaced_only_if_that_is_said() -> None:
    async with a_licensed_cml() as (_, cml, server):
        assert (await cml.state(server)).is_held
        assert "reregister" in await cml.register(server, TOKEN)
        assert await cml.register(server, TOKEN, again=True) == ""


async def test_product_nodes_and_the_way_to_the_license_server_are_set_where_they_differ() -> None:
    async with a_licensed_cml() as (_, cml, server):
        assert await cml.deregister(server, within_seconds=5.0) == ""
        terms = LicenseTerms(
            product_license="CML_Education",
            node_count=20,
            ssms_url="https://ssm.example/SmartTransport",
            proxy_host="proxy.example",
            proxy_port=8080,
        )
        assert await cml.prepare(server, terms, await cml.state(server)) == ""
        state = await cml.state(server)
        assert (state.tier, state.ssms_url) == ("CML_Education", terms.ssms_url)
        assert (state.proxy_host, state.proxy_port) == ("proxy.example", 8080)
        # CML refuses the product that is active: a second preparation changes nothing.
        assert await cml.prepare(server, terms, state) == ""
        assert await cml.register(server, TOKEN) == ""
        while not (await cml.state(server)).is_registered:
            await SystemClock().sleep(0.02)
        assert state.node_feature is not None
        assert await cml.set_node_count(server, state.node_feature, 20) == ""
        assert (await cml.state(server)).node_count == 20
        assert "out of range" in await cml.set_node_count(server, state.node_feature, 9_000)
