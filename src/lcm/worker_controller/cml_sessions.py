"""Logins to the CML servers: one for each, shared by everybody who asks it something."""

from lcm.cml.connection import CmlTransport
from lcm.cml.session import CmlSession, Credentials, always
from lcm.core.clock import Clock
from lcm.core.redaction import redactor
from lcm.domain.errors import NotFound, Unreachable
from lcm.domain.launch import WorkerId
from lcm.worker_controller.ports import CmlServer, LoginSource


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
        self._known: dict[WorkerId, tuple[CmlServer, CmlSession]] = {}

    def of(self, server: CmlServer) -> CmlSession:
        """The same as before at the same server: what it refused is not forgotten with a monitor, nor
        because the machine has another address now. Another login has not been refused yet."""
        known = self._known.get(server.worker_id)
        if known is not None and known[0] == server:
            return known[1]
        session = self._open(server)
        if known is not None and _is_same_door(known[0], server):
            session.remember_refusals_of(known[1])
        self._known[server.worker_id] = (server, session)
        return session

    def forget(self, worker_id: WorkerId) -> None:
        self._known.pop(worker_id, None)

    def forget_all(self) -> None:
        self._known.clear()

    def _open(self, server: CmlServer) -> CmlSession:
        async def own_login() -> Credentials:
            try:
                told = await self._own.get_cml_login(server.worker_id)
            except NotFound:
                raise Unreachable(f"the login of {server.worker_id} is being changed") from None
            redactor.protect(told.password)
            place = f"PUT /api/workers/{server.worker_id}/cml-login"
            return Credentials(told.username, told.password, set_by=place)

        login = own_login if server.login is not None else self._fleets_login
        pin = server.certificate_sha256 if self._is_pinned else None
        return CmlSession(self._transport, login, server.host, pin, self._clock)


def _is_same_door(one: CmlServer, other: CmlServer) -> bool:
    return one.instance_id == other.instance_id and one.login == other.login
