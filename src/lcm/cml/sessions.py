"""Logins to the CML servers: one session for each server, shared by all its clients."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Protocol

from lcm.cml.connection import CmlLimits, CmlTransport
from lcm.cml.session import CmlSession, Credentials, Login, always
from lcm.core.clock import Clock
from lcm.core.redaction import redactor
from lcm.domain.errors import NotFound, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.worker import CmlLogin, Worker

LOGINS_KEPT: Final = 3
"""Per worker: the login in use and those before it."""


@dataclass(frozen=True)
class CmlServer:
    """The CML server of a worker, and the login for it."""

    worker_id: WorkerId
    instance_id: InstanceId | None
    host: str
    certificate_sha256: str | None
    login: CmlLogin | None
    """None: the fleet's."""


def server_of(worker: Worker, *, use_private_ip: bool) -> CmlServer | None:
    """The CML server of a worker; None as long as it has no address, or is not trusted with a login."""
    if not worker.is_trusted:
        return None
    host = host_of(worker, use_private_ip=use_private_ip)
    if host is None:
        return None
    return CmlServer(
        worker_id=worker.id,
        instance_id=worker.instance.id,
        host=host,
        certificate_sha256=worker.cml.certificate_sha256,
        login=worker.cml.login,
    )


def host_of(worker: Worker, *, use_private_ip: bool) -> str | None:
    """The address of its CML."""
    return worker.instance.address(use_private_ip=use_private_ip)


class StoredLogin(Protocol):
    """A worker's own login, as the control plane answers it."""

    @property
    def username(self) -> str: ...

    @property
    def password(self) -> str: ...

    @property
    def secret_ref(self) -> str: ...


class LoginSource(Protocol):
    """The passwords of workers that have a login of their own."""

    async def get_cml_login(self, worker_id: WorkerId) -> StoredLogin: ...


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
        login_seconds: float = CmlLimits.login,
    ) -> None:
        self._transport = transport
        self._fleet_login = always(fleet)
        self._own = own
        self._clock = clock
        self._is_pinned = is_pinned
        self._login_seconds = login_seconds
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
            return self._session(self._fleet_login, server.host, pin)

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

        return self._session(own_login, server.host, pin)

    def _session(self, login: Login, host: str, pin: str | None) -> CmlSession:
        return CmlSession(self._transport, login, host, pin, self._clock, self._login_seconds)
