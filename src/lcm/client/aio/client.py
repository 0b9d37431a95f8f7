"""The asynchronous client.

    async with AsyncLcm() as lcm:
        worker = await lcm.workers.create("ccna", template="kvm-small")
        worker = await lcm.workers.wait("ccna", "ready", timeout_seconds=900)

The modules of the resources are loaded when they are first used: a command needs one of them.
"""

from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lcm.client.aio.link import AsyncEvents, AsyncLink
from lcm.client.aio_transport import AsyncAccess, AsyncTransport
from lcm.client.calls import Call
from lcm.client.contexts import Context, find_context
from lcm.core.clock import SystemClock
from lcm.rest.access import BrowserSession, BrowserSessions
from lcm.rest.schemas import (
    CostReport,
    LicenseDebts,
    LicenseSettings,
    RegionList,
    RegionView,
    SessionView,
    SignInWays,
)

if TYPE_CHECKING:
    from lcm.client.aio.catalogue import AsyncLabs, AsyncTemplates, AsyncTokens
    from lcm.client.aio.fleet import AsyncFleet
    from lcm.client.aio.lablets import AsyncClasses, AsyncDefinitions, AsyncSessions
    from lcm.client.aio.workers import AsyncWorkers


class AsyncLcm:
    """One LCM. Without arguments that of the context in force; use as `async with`."""

    def __init__(
        self,
        url: str | None = None,
        token: str = "",
        *,
        context: Context | str | None = None,
        ca_file: str | None = None,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 20.0,
    ) -> None:
        """Raises ContextError. Calls are repeated for `retry_seconds` where that is safe."""
        if url is not None:
            context = Context(url=url, token=token, ca_file=ca_file)
        elif not isinstance(context, Context):
            context = find_context(context)
        self.url = context.url.rstrip("/")
        transport = AsyncTransport(self.url, context.ca_file, timeout_seconds)
        self._link = AsyncLink(transport, AsyncAccess(context), SystemClock(), retry_seconds)

    @cached_property
    def workers(self) -> "AsyncWorkers":
        from lcm.client.aio.workers import AsyncWorkers

        return AsyncWorkers(self._link)

    @cached_property
    def definitions(self) -> "AsyncDefinitions":
        from lcm.client.aio.lablets import AsyncDefinitions

        return AsyncDefinitions(self._link)

    @cached_property
    def sessions(self) -> "AsyncSessions":
        from lcm.client.aio.lablets import AsyncSessions

        return AsyncSessions(self._link)

    @cached_property
    def classes(self) -> "AsyncClasses":
        from lcm.client.aio.lablets import AsyncClasses

        return AsyncClasses(self._link)

    @cached_property
    def templates(self) -> "AsyncTemplates":
        from lcm.client.aio.catalogue import AsyncTemplates

        return AsyncTemplates(self._link)

    @cached_property
    def labs(self) -> "AsyncLabs":
        from lcm.client.aio.catalogue import AsyncLabs

        return AsyncLabs(self._link)

    @cached_property
    def tokens(self) -> "AsyncTokens":
        from lcm.client.aio.catalogue import AsyncTokens

        return AsyncTokens(self._link)

    @cached_property
    def fleet(self) -> "AsyncFleet":
        from lcm.client.aio.fleet import AsyncFleet

        return AsyncFleet(self._link)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.close()

    async def who(self) -> SessionView:
        """Return who is calling, and with which role."""
        return await self._link.send(Call(path="/api/session", answer=SessionView))

    async def sign_in_ways(self) -> SignInWays:
        """Return how people can sign in here; it takes no token to ask."""
        return await self._link.send(Call(path="/api/session/sign-in", answer=SignInWays))

    async def browsers(self, *, all_people: bool = False) -> list[BrowserSession]:
        """Return the browsers that are signed in as you; for admins also those of all people."""
        query = {"all_people": all_people or None}
        return (
            await self._link.send(Call(path="/api/session/all", query=query, answer=BrowserSessions))
        ).items

    async def sign_out_everywhere(self, principal_id: str | None = None) -> None:
        """End the browser sessions of yours; for admins also those of another principal."""
        query = {"principal_id": principal_id}
        await self._link.send(Call(method="DELETE", path="/api/session/all", query=query, answer=type(None)))

    async def cost(self, month: str | None = None) -> CostReport:
        """Return the cost of a month, as in 2026-11; of the present one without."""
        return await self._link.send(Call(path="/api/cost", query={"month": month}, answer=CostReport))

    async def regions(self) -> list[RegionView]:
        return (await self._link.send(Call(path="/api/regions", answer=RegionList))).items

    async def license_debts(self) -> LicenseDebts:
        return await self._link.send(Call(path="/api/license-debts", answer=LicenseDebts))

    async def has_fleet_license(self) -> bool:
        call = Call(path="/api/settings/license", answer=LicenseSettings)
        return (await self._link.send(call)).has_token

    async def set_fleet_license(self, token: str) -> None:
        """Set the token for every worker that should be licensed and has none of its own."""
        body = {"token": token}
        await self._link.send(
            Call(method="PUT", path="/api/settings/license", body=body, answer=LicenseSettings)
        )

    async def call(
        self, method: str, path: str, body: object = None, *, if_match: str | None = None
    ) -> bytes:
        """Send any request and return its answer as it is; what is safe to repeat is repeated."""
        return await self._link.send(
            Call(method=method, path=path, body=body, if_match=if_match, answer=bytes)
        )

    def events(
        self,
        *,
        worker_ids: Sequence[str] = (),
        types: Sequence[str] = (),
        last_event_id: str | None = None,
    ) -> AsyncEvents:
        """Return the events of these workers and of types with these prefixes; empty: of all."""
        return AsyncEvents(self._link, worker_ids=worker_ids, types=types, last_event_id=last_event_id)
