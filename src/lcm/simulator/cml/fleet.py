"""Keeps one CML server reachable for every running instance, and none for the others.

All servers share one HTTP application; a request is told apart by the local address it came in on.
"""

import asyncio
import secrets
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from lcm.simulator.cml.certificate import self_signed_context
from lcm.simulator.cml.server import CmlServer, Credentials, Query, is_cml_image
from lcm.simulator.listing import InstanceListing, SimulatedInstance
from lcm.simulator.pace import Delays, Pace

BIND_RETRY_SECONDS: Final = 1.0
SHUTDOWN_SECONDS: Final = 0.5
"""Connections are broken by then; what is left is the last answer being written."""


@dataclass(frozen=True)
class _Site:
    server: CmlServer
    tls: ssl.SSLContext


class Fleet:
    """Every CML server of the simulation."""

    def __init__(
        self, *, port: int, credentials: Credentials, pace: Pace, delays: Delays, directory: Path | None
    ) -> None:
        self._port = port
        self._credentials = credentials
        self._pace = pace
        self._delays = delays
        self._directory = directory
        self._sites: dict[str, _Site] = {}
        self._boots: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._by_address: dict[str, CmlServer] = {}
        self._http = web.Server(self._handle, access_log=None)

    async def follow(self, listings: AsyncIterator[InstanceListing]) -> None:
        """Serve what each listing shows as running until the listings end or this is cancelled."""
        try:
            async with asyncio.TaskGroup() as boots:
                async for listing in listings:
                    self._adjust(listing.instances, boots)
        finally:
            await self._http.shutdown(SHUTDOWN_SECONDS)

    def _adjust(self, instances: Iterable[SimulatedInstance], boots: asyncio.TaskGroup) -> None:
        described = {i.id: i for i in instances if is_cml_image(i.image_name)}
        running = {(i.id, i.generation): i for i in described.values() if i.state == "running"}
        for boot in self._boots.keys() - running.keys():
            self._boots.pop(boot).cancel()
        for instance_id in self._sites.keys() - described.keys():
            del self._sites[instance_id]
        for boot in running.keys() - self._boots.keys():
            self._boots[boot] = boots.create_task(self._serve(running[boot]), name=f"cml-{boot[0]}")

    async def _serve(self, instance: SimulatedInstance) -> None:
        """One boot of one server, from power to cancellation."""
        site = self._site(instance.id)
        schedule = site.server.power_on(instance)
        await asyncio.sleep((instance.running_since or 0.0) + schedule.gateway_at - time.time())
        addresses = [ip for ip in (instance.private_ip, instance.public_ip) if ip]
        listeners: list[asyncio.Server] = []
        try:
            self._by_address |= dict.fromkeys(addresses, site.server)
            for address in addresses:
                listeners.append(await self._listen(address, site.tls))
            await asyncio.Event().wait()
        finally:
            for listener in listeners:
                listener.close()
            self._hang_up(addresses)

    def _site(self, instance_id: str) -> _Site:
        """The server of an instance, with the certificate it has had since its first boot."""
        if instance_id not in self._sites:
            server = CmlServer(
                credentials=self._credentials,
                pace=self._pace,
                delays=self._delays,
                secret=secrets.token_bytes(32),
            )
            self._sites[instance_id] = _Site(server, self_signed_context(instance_id, self._directory))
        return self._sites[instance_id]

    async def _listen(self, address: str, tls: ssl.SSLContext) -> asyncio.Server:
        """Another program on our port at this address is a nuisance to one worker, not to the fleet."""
        while True:
            try:
                return await asyncio.get_running_loop().create_server(
                    self._http, host=address, port=self._port, ssl=tls
                )
            except OSError as failure:
                print(f"simulator: cannot listen on {address}:{self._port}: {failure}", file=sys.stderr)
                await asyncio.sleep(BIND_RETRY_SECONDS)

    def _hang_up(self, addresses: list[str]) -> None:
        for address in addresses:
            self._by_address.pop(address, None)
        for connection in self._http.connections:
            transport = connection.transport
            if transport is not None and _local_address(transport) in addresses:
                transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        server = self._by_address.get(_local_address(transport)) if transport else None
        if transport is None or server is None:
            # The machine lost its power while this connection was being made: nobody gets an answer.
            if transport is not None:
                transport.abort()
            return web.Response(status=502)
        query = Query(
            method=request.method,
            path=request.path,
            authorization=request.headers.get("Authorization", ""),
            body=await request.read(),
        )
        answer = server.answer(query, time.time())
        return web.Response(
            status=answer.status,
            body=answer.body,
            headers={"Server": "nginx", "Content-Type": answer.content_type},
        )


def _local_address(transport: asyncio.BaseTransport) -> str:
    sockname: tuple[str, int] = transport.get_extra_info("sockname")
    return sockname[0]
