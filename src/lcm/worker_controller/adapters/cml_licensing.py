"""CML's licensing API."""

from collections.abc import Callable
from typing import Final

import msgspec

from lcm.cml.connection import CmlAnswer
from lcm.cml.session import CmlSession
from lcm.cml.sessions import CmlServer
from lcm.domain.errors import Unreachable
from lcm.domain.license import FREE_REGISTRATIONS, LicenseTerms
from lcm.worker_controller.ports import HAS_NONE, POOL_NOT_NOTIFIED, LicenseState

STATE: Final = "/api/v0/licensing"
REGISTRATION: Final = "/api/v0/licensing/registration"
DEREGISTRATION: Final = "/api/v0/licensing/deregistration"

PRODUCT: Final = "/api/v0/licensing/product_license"
TRANSPORT: Final = "/api/v0/licensing/transport"
FEATURES: Final = "/api/v0/licensing/features"
NODE_COUNT: Final = "CML_NODE_COUNT"
"""In CML's id of the feature of more nodes."""

_GARBAGE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Not JSON, not UTF-8, nested too deeply."""


class _RegisterTime(msgspec.Struct, frozen=True):
    failure: str | None = None
    success: str | None = None


class _Registration(msgspec.Struct, frozen=True):
    status: str = ""
    register_time: _RegisterTime = _RegisterTime()


class _Authorization(msgspec.Struct, frozen=True):
    status: str = ""


class _ProductLicense(msgspec.Struct, frozen=True):
    active: str | None = None


class _Feature(msgspec.Struct, frozen=True):
    id: str = ""
    in_use: int = 0


class _Proxy(msgspec.Struct, frozen=True):
    server: str | None = None
    port: int | None = None


class _Transport(msgspec.Struct, frozen=True):
    ssms: str | None = None
    proxy: _Proxy = _Proxy()


class _Licensing(msgspec.Struct, frozen=True):
    registration: _Registration = _Registration()
    authorization: _Authorization = _Authorization()
    product_license: _ProductLicense = _ProductLicense()
    features: list[_Feature] = []
    transport: _Transport = _Transport()


class _Refusal(msgspec.Struct, frozen=True):
    description: str = ""


class CmlLicensingClient:
    """Uses the session that all clients of a server share."""

    def __init__(self, session_of: Callable[[CmlServer], CmlSession]) -> None:
        self._session_of = session_of

    async def state(self, server: CmlServer) -> LicenseState:
        answer = await self._session_of(server).get(STATE)
        try:
            return license_state(answer.body)
        except _GARBAGE_ERRORS as error:
            raise Unreachable(f"CML at {server.host} sent an invalid answer: {error}") from None

    async def prepare(self, server: CmlServer, terms: LicenseTerms, state: LicenseState) -> str:
        session = self._session_of(server)
        ssms, proxy = terms.ssms_url or state.ssms_url, terms.proxy_host or state.proxy_host
        port = terms.proxy_port or state.proxy_port
        if (ssms, proxy, port) != (state.ssms_url, state.proxy_host, state.proxy_port):
            body = msgspec.json.encode({"ssms": ssms, "proxy": {"server": proxy, "port": port}})
            answer = await session.request("PUT", TRANSPORT, body)
            if refusal := _refusal_of(answer, server.host, accepted=(204,)):
                return refusal
        if terms.product_license in (None, state.tier):
            return ""
        answer = await session.request("PUT", PRODUCT, msgspec.json.encode(terms.product_license))
        return _refusal_of(answer, server.host, accepted=(204,))

    async def set_node_count(self, server: CmlServer, feature: str, count: int) -> str:
        body = msgspec.json.encode([{"id": feature, "count": count}])
        answer = await self._session_of(server).request("PATCH", FEATURES, body)
        return _refusal_of(answer, server.host, accepted=(204,))

    async def register(self, server: CmlServer, token: str, *, again: bool = False) -> str:
        body = msgspec.json.encode({"token": token, "reregister": again})
        answer = await self._session_of(server).request("POST", REGISTRATION, body)
        return _refusal_of(answer, server.host, accepted=(204,))

    async def deregister(self, server: CmlServer, *, within_seconds: float) -> str:
        session = self._session_of(server)
        answer = await session.request("DELETE", DEREGISTRATION, timeout_seconds=within_seconds)
        if answer.status == 202:
            return POOL_NOT_NOTIFIED
        # A request that is cut off may have been sent twice: 400 does not say that this one did nothing.
        return HAS_NONE if answer.status == 400 else _refusal_of(answer, server.host, accepted=(204,))


def license_state(body: bytes) -> LicenseState:
    """What the body of `GET /licensing` says; raises if it is garbage."""
    state = msgspec.json.decode(body, type=_Licensing)
    is_registered = state.registration.status == "COMPLETED"
    has_failed = state.registration.status in ("FAILED", "RETRY_IN_PROGRESS")
    nodes = next((feature for feature in state.features if NODE_COUNT in feature.id), None)
    return LicenseState(
        is_registered=is_registered and state.authorization.status == "IN_COMPLIANCE",
        tier=state.product_license.active,
        failure=(state.registration.register_time.failure or "no reason given") if has_failed else "",
        is_free=state.registration.status in FREE_REGISTRATIONS,
        is_held=is_registered,
        node_feature=nodes.id if nodes else None,
        node_count=nodes.in_use if nodes else 0,
        ssms_url=state.transport.ssms,
        proxy_host=state.transport.proxy.server,
        proxy_port=state.transport.proxy.port,
    )


def _refusal_of(answer: CmlAnswer, host: str, accepted: tuple[int, ...]) -> str:
    if answer.status in accepted:
        return ""
    if answer.status >= 500:
        raise Unreachable(f"CML at {host} answered {answer.status} to a license operation")
    try:
        return msgspec.json.decode(answer.body, type=_Refusal).description or f"CML answered {answer.status}"
    except _GARBAGE_ERRORS:
        return f"CML answered {answer.status}"
