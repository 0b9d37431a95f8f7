"""Licensing, for administrators only."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lcm.simulator.cml.api.routing import Answer, Call, Handler, Route
from lcm.simulator.cml.refusal import Refused


def status(call: Call) -> dict[str, Any]:
    return call.server.licensing.status(call.now)


def tech_support(call: Call) -> str:
    return f"Smart Licensing Tech Support\nStatus: {status(call)['registration']['status']}\n"


def register(call: Call) -> None:
    requested = call.fields()
    call.server.licensing.register(
        requested.get("token"), reregister=bool(requested.get("reregister")), now=call.now
    )


def deregister(call: Call) -> Answer:
    is_confirmed = call.server.licensing.deregister(call.now)
    return Answer(204 if is_confirmed else 202)


def renew(call: Call) -> None:
    call.server.licensing.renew(call.now)


def product_license(call: Call) -> None:
    call.server.licensing.set_product(call.body())


def features(call: Call) -> None:
    """A list of `{id, count}`, or the older `{id: count}`."""
    requested = call.body()
    try:
        counts = (
            dict(requested)
            if isinstance(requested, dict)
            else {item["id"]: item["count"] for item in requested}
        )
        call.server.licensing.set_features({str(name): int(count) for name, count in counts.items()})
    except (TypeError, KeyError, ValueError):
        raise Refused(400, "Bad request: a list of id and count is expected") from None


class Proxy(msgspec.Struct, frozen=True):
    """The connection between the server and Cisco."""

    server: str | None = None
    port: int | None = None


class Transport(msgspec.Struct, frozen=True):
    """How the server reaches Cisco."""

    ssms: str | None = None
    proxy: Proxy = Proxy()


def transport(call: Call) -> None:
    requested = call.read(Transport)
    call.server.licensing.set_transport(requested.ssms, msgspec.structs.asdict(requested.proxy))


def reservation_mode(call: Call) -> None:
    call.server.licensing.set_reservation(is_on=bool(call.body()))


def _for_admins(handler: Callable[[Call], Any]) -> Handler:
    def guarded(call: Call) -> Any:
        call.need_admin()
        return handler(call)

    return guarded


ROUTES: Final[tuple[Route, ...]] = tuple(
    (method, path, _for_admins(handler))
    for method, path, handler in (
        ("GET", "licensing", status),
        ("GET", "licensing/tech_support", tech_support),
        ("POST", "licensing/registration", register),
        ("PUT", "licensing/registration/renew", renew),
        ("PUT", "licensing/authorization/renew", renew),
        ("DELETE", "licensing/deregistration", deregister),
        ("PUT", "licensing/product_license", product_license),
        ("PATCH", "licensing/features", features),
        ("PUT", "licensing/transport", transport),
        ("PUT", "licensing/reservation/mode", reservation_mode),
    )
)
