"""Logins to the CML servers: one for each, shared by everybody who asks it something."""

from collections import defaultdict
from typing import Final

from lcm.cml.connection import CmlTransport
from lcm.cml.session import CmlSession, Credentials, always
from lcm.core.clock import Clock
from lcm.core.redaction import redactor
from lcm.domain.errors import NotFound, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.worker import CmlLogin
from lcm.worker_controller.ports import CmlServer, LoginSource

DOORS_KEPT: Final = 3
"""Of one worker: the one in use and those before it."""

_Door = tuple[InstanceId | None, CmlLogin | None]
"""What a refusal belongs to: a machine and a login, whatever the machine's address is."""


class CmlSessions:
    """A worker that has a login of its own is asked with it, every other one with the fleet's."""

    def __init__(
        self,
        transport: CmlTransport,
        fleet: Credentials,
        own: LoginSource,
        clock: Clock,
        *,
        is_pinned: bool = True,
    ) -> None:
        self._transport = transport
        self._fleets_login = always(fleet)
        self._own = own
        self._clock = clock
        self._is_pinned = is_pinned
        self._known: dict[WorkerId, dict[_Door, tuple[CmlServer, CmlSession]]] = defaultdict(dict)

    def of(self, server: CmlServer) -> CmlSession:
        """The same as before at the same server: what it refused is not forgotten with a monitor, nor
        because the machine has another address now, nor because an old record names another login."""
        doors, door = self._known[server.worker_id], (server.instance_id, server.login)
        known = doors.pop(door, None)
        if known is None or known[0] != server:
            session = self._open(server)
            if known is not None:
                session.inherit_refusals(known[1])
            known = (server, session)
        doors[door] = known
        if len(doors) > DOORS_KEPT:
            del doors[next(iter(doors))]
        return known[1]

    def forget(self, worker_id: WorkerId) -> None:
        self._known.pop(worker_id, None)

    def forget_all(self) -> None:
        self._known.clear()

    def _open(self, server: CmlServer) -> CmlSession:
        login = server.login
        pin = server.certificate_sha256 if self._is_pinned else None
        if login is None:
            return CmlSession(self._transport, self._fleets_login, server.host, pin, self._clock)

        async def own_login() -> Credentials:
            try:
                told = await self._own.get_cml_login(server.worker_id)
            except NotFound:
                told = None
            if told is None or told.secret_ref != login.secret_ref:
                raise Unreachable(f"the login of {server.worker_id} is being changed")
            redactor.protect(told.password)
            place = f"PUT /api/workers/{server.worker_id}/cml-login"
            return Credentials(told.username, told.password, set_by=place)

        return CmlSession(self._transport, own_login, server.host, pin, self._clock)
