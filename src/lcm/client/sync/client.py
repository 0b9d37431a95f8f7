# Generated from `aio` by `make docs`; change that instead.
"""The synchronous client.

    with Lcm() as lcm:
        worker = lcm.workers.create("ccna", template="kvm-small")
        worker = lcm.workers.wait("ccna", "ready", timeout_seconds=900)

The modules of the resources are loaded when they are first used: a command needs one of them.
"""

from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lcm.client.calls import Call
from lcm.client.contexts import Context, find_context
from lcm.client.sync.link import Events, Link
from lcm.client.sync_transport import Access, Transport
from lcm.core.blocking_clock import BlockingClock
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
    from lcm.client.sync.catalogue import Labs, Templates, Tokens
    from lcm.client.sync.fleet import Fleet
    from lcm.client.sync.lablets import Classes, Definitions, Sessions
    from lcm.client.sync.workers import Workers


class Lcm:
    """One LCM. Without arguments that of the context in force; use as `with`."""

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
        transport = Transport(self.url, context.ca_file, timeout_seconds)
        self._link = Link(transport, Access(context), BlockingClock(), retry_seconds)

    @cached_property
    def workers(self) -> "Workers":
        from lcm.client.sync.workers import Workers

        return Workers(self._link)

    @cached_property
    def definitions(self) -> "Definitions":
        from lcm.client.sync.lablets import Definitions

        return Definitions(self._link)

    @cached_property
    def sessions(self) -> "Sessions":
        from lcm.client.sync.lablets import Sessions

        return Sessions(self._link)

    @cached_property
    def classes(self) -> "Classes":
        from lcm.client.sync.lablets import Classes

        return Classes(self._link)

    @cached_property
    def templates(self) -> "Templates":
        from lcm.client.sync.catalogue import Templates

        return Templates(self._link)

    @cached_property
    def labs(self) -> "Labs":
        from lcm.client.sync.catalogue import Labs

        return Labs(self._link)

    @cached_property
    def tokens(self) -> "Tokens":
        from lcm.client.sync.catalogue import Tokens

        return Tokens(self._link)

    @cached_property
    def fleet(self) -> "Fleet":
        from lcm.client.sync.fleet import Fleet

        return Fleet(self._link)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    def who(self) -> SessionView:
        """Return who is calling, and with which role."""
        return self._link.send(Call(path="/api/session", answer=SessionView))

    def sign_in_ways(self) -> SignInWays:
        """Return how people can sign in here; it takes no token to ask."""
        return self._link.send(Call(path="/api/session/sign-in", answer=SignInWays))

    def browsers(self, *, all_people: bool = False) -> list[BrowserSession]:
        """Return the browsers that are signed in as you; for admins also those of all people."""
        query = {"all_people": all_people or None}
        return (self._link.send(Call(path="/api/session/all", query=query, answer=BrowserSessions))).items

    def sign_out_everywhere(self, principal_id: str | None = None) -> None:
        """End the browser sessions of yours; for admins also those of another principal."""
        query = {"principal_id": principal_id}
        self._link.send(Call(method="DELETE", path="/api/session/all", query=query, answer=type(None)))

    def cost(self, month: str | None = None) -> CostReport:
        """Return the cost of a month, as in 2026-11; of the present one without."""
        return self._link.send(Call(path="/api/cost", query={"month": month}, answer=CostReport))

    def regions(self) -> list[RegionView]:
        return (self._link.send(Call(path="/api/regions", answer=RegionList))).items

    def license_debts(self) -> LicenseDebts:
        return self._link.send(Call(path="/api/license-debts", answer=LicenseDebts))

    def has_fleet_license(self) -> bool:
        call = Call(path="/api/settings/license", answer=LicenseSettings)
        return (self._link.send(call)).has_token

    def set_fleet_license(self, token: str) -> None:
        """Set the token for every worker that should be licensed and has none of its own."""
        body = {"token": token}
        self._link.send(Call(method="PUT", path="/api/settings/license", body=body, answer=LicenseSettings))

    def call(self, method: str, path: str, body: object = None, *, if_match: str | None = None) -> bytes:
        """Send any request and return its answer as it is; what is safe to repeat is repeated."""
        return self._link.send(Call(method=method, path=path, body=body, if_match=if_match, answer=bytes))

    def events(
        self,
        *,
        worker_ids: Sequence[str] = (),
        types: Sequence[str] = (),
        last_event_id: str | None = None,
    ) -> Events:
        """Return the events of these workers and of types with these prefixes; empty: of all."""
        return Events(self._link, worker_ids=worker_ids, types=types, last_event_id=last_event_id)
