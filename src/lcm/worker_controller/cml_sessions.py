"""Logins to the CML servers: one session for each server, shared by all its clients."""

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

LOGINS_KEPT: Final = 3
"""Per worker: the login in use and those before it."""

_LoginKey = tuple[InstanceId | None, CmlLogin | None]
"""What a refusal belongs to: an instance and a login, whatever the address of the instance is."""


class CmlSessions:
    """Uses a worker's own login where it has one, and the fleet's otherwise."""

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
        self._fleet_login = always(fleet)
        self._own = own
        self._clock = clock
        self._is_pinned = is_pinned
        self._known: dict[WorkerId, dict[_LoginKey, tuple[CmlServer, CmlSession]]] = defaultdict(dict)

    def of(self, server: CmlServer) -> CmlSession:
        """The session of a server. Its refusals outlive a monitor, a new address of the instance, and an
        outdated record that names another login."""
        sessions, key = self._known[server.worker_id], (server.instance_id, server.login)
        known = sessions.pop(key, None)
        if known is None or known[0] != server:
            session = self._open(server)
            if known is not None:
                session.inherit_refusals(known[1])
            known = (server, session)
        sessions[key] = known
        if len(sessions) > LOGINS_KEPT:
            del sessions[next(iter(sessions))]
        return known[1]

    def forget(self, worker_id: WorkerId) -> None:
        self._known.pop(worker_id, None)

    def forget_all(self) -> None:
        self._known.clear()

    def _open(self, server: CmlServer) -> CmlSession:
        login = server.login
        pin = server.certificate_sha256 if self._is_pinned else None
        if login is None:
            return CmlSession(self._transport, self._fleet_login, server.host, pin, self._clock)

        async def own_login() -> Credentials:
            try:
                answer = await self._own.get_cml_login(server.worker_id)
            except NotFound:
                answer = None
            if answer is None or answer.secret_ref != login.secret_ref:
                raise Unreachable(f"the login of {server.worker_id} is being changed")
            redactor.protect(answer.password)
            place = f"PUT /api/workers/{server.worker_id}/cml-login"
            return Credentials(answer.username, answer.password, set_by=place)

        return CmlSession(self._transport, own_login, server.host, pin, self._clock)
