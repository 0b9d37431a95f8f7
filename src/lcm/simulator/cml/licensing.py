"""Smart Licensing of one server: a request is accepted at once and decided later.

State advances when it is read. All servers share one pool of licenses, on Cisco's side; a server that is
terminated without deregistering keeps its license there.
"""

import re
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from lcm.simulator.cml.refusal import Refused
from lcm.simulator.pace import Pace

TOKEN: Final = re.compile(r"[a-zA-Z\d+/%=-]{1,256}")
REGISTER_SECONDS: Final = 4.0
AUTHORIZE_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 20.0
"""How long a registration that cannot reach Cisco waits between its attempts."""

CISCO_TIMEOUT_SECONDS: Final = 90.0
"""How long a deregistration tries to reach Cisco before it is done without; not documented, below 120 s."""

DAY: Final = 86_400.0
REGISTRATION_DAYS: Final = 365
AUTHORIZATION_DAYS: Final = 90

SSMS: Final = "https://smartreceiver.cisco.com/licservice/license"
PRODUCTS: Final = (
    "CML_Personal",
    "CML_Personal40",
    "CML_Enterprise",
    "CML_Education",
    "CML_Internal",
    "CML_NotForResale",
)
BASE_FEATURE: Final = "regid.2019-10.com.cisco.CML_ENT_BASE,1.0_15d3393c-846c-4e00-a54e-1ea90f2b2160"
NODES_FEATURE: Final = "regid.2019-10.com.cisco.CML_NODE_COUNT,1.0_2607650b-6ca8-46d5-81e5-e6688b7383c4"
MAX_NODES: Final = 500


class LicensePool:
    """Cisco's side: the valid token, and the products that hold a license."""

    def __init__(self, token: str, size: int) -> None:
        self.token = token
        self.size = size
        self.is_reachable = True
        self.loses_deregistrations = False
        """A fault: it is notified of no deregistration."""
        self.holders: dict[str, str] = {}
        """Product uuid to the name of the server; the oldest first."""

    def claim(self, product: str, name: str) -> bool:
        """False when all licenses are taken; a product that holds one keeps it."""
        if product not in self.holders and len(self.holders) >= self.size:
            return False
        self.holders[product] = name
        return True

    def release(self, product: str) -> bool:
        """Whether it was notified."""
        if not self.is_reachable or self.loses_deregistrations:
            return False
        self.holders.pop(product, None)
        return True


class Licensing:
    """The licensing agent of one server."""

    def __init__(self, *, pool: LicensePool, pace: Pace, name: str) -> None:
        self.pool = pool
        self._pace = pace
        self._name = name
        self._product_uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        self._attempts = 0
        self._transport: dict[str, Any] = {"ssms": SSMS, "proxy": {"server": None, "port": None}}
        self._product = "CML_Enterprise"
        self._node_count = 0
        self._is_reservation = False
        self._registration, self._authorization = "NOT_REGISTERED", "INIT"
        self._token: str | None = None
        """The token of the attempt under way."""
        self._due: float | None = None
        """When the attempt is decided."""
        self._attempted_at: float | None = None
        self._failure: str | None = None
        self._registered_at = self._authorized_at = 0.0

    # State

    @property
    def is_enterprise(self) -> bool:
        return self._product == "CML_Enterprise"

    def is_licensed(self, now: float) -> bool:
        self._settle(now)
        return self._authorization == "IN_COMPLIANCE"

    def status(self, now: float) -> dict[str, Any]:
        """The body of `GET /licensing`."""
        self._settle(now)
        is_registered = self._registration == "COMPLETED"
        is_authorized = self._authorization == "IN_COMPLIANCE"
        return {
            "registration": {
                "status": self._registration,
                "smart_account": "Simulated Account" if is_registered else None,
                "virtual_account": "Default" if is_registered else None,
                "expires": _time(self._registered_at, REGISTRATION_DAYS) if is_registered else None,
                "register_time": self._register_time(is_registered),
                "renew_time": _renewal(
                    attempted=None,
                    scheduled=_time(self._registered_at, REGISTRATION_DAYS // 2) if is_registered else None,
                    is_success=False,  # no renewal was ever attempted: CML calls that FAILED
                    status=None,
                ),
            },
            "authorization": {
                "status": "NOT_AUTHORIZED" if self._is_reservation else self._authorization,
                "expires": _time(self._authorized_at, AUTHORIZATION_DAYS) if is_authorized else None,
                "renew_time": _renewal(
                    attempted=_time(self._authorized_at) if is_authorized else None,
                    scheduled=_time(self._authorized_at, 30) if is_authorized else None,
                    is_success=is_authorized,
                    status="SUCCEEDED" if is_authorized else None,
                ),
            },
            "features": self._features(is_authorized),
            "reservation_mode": self._is_reservation,
            "transport": {"default_ssms": SSMS, **self._transport},
            "udi": {"hostname": "cml-controller", "product_uuid": self._product_uuid},
            "product_license": {"active": self._product, "is_enterprise": self.is_enterprise},
        }

    # Requests

    def register(self, token: object, *, reregister: bool, now: float) -> None:
        """Accept a registration; only later reads show its outcome."""
        self._settle(now)
        if not isinstance(token, str) or not TOKEN.fullmatch(token):
            raise Refused(400, "The registration token is missing or malformed.")
        if self._is_reservation:
            raise Refused(409, "Registration is not possible in reservation mode.")
        if self._registration == "COMPLETED" and not reregister:
            raise Refused(409, "The product instance is already registered; use reregister.")
        self._token = token
        self._attempts += 1
        self._registration, self._authorization = "IN_PROGRESS", "INIT"
        self._attempted_at, self._failure = now, None
        self._due = now + self._pace.seconds(REGISTER_SECONDS, "register", self._name, self._attempts)

    def deregister(self, now: float) -> bool:
        """Deregister; return whether Cisco was notified. It does not stop a registration under way."""
        self._settle(now)
        if self._registration in ("NOT_REGISTERED", "IN_PROGRESS"):
            raise Refused(400, "The product instance is not registered.")
        is_confirmed = self.pool.release(self._product_uuid)
        self._clear()
        return is_confirmed

    def deregistration_seconds(self, now: float) -> float:
        """How long a deregistration takes that begins now: it waits for Cisco."""
        self._settle(now)
        if self._registration != "COMPLETED" or self.pool.is_reachable:
            return 0.0
        return self._pace.seconds(CISCO_TIMEOUT_SECONDS, "deregister", self._name, self._attempts)

    def lose_power(self, at: float) -> None:
        """Drop a registration that is not decided by then."""
        self._settle(at)
        if self._registration == "IN_PROGRESS":
            self._clear()

    def renew(self, now: float) -> None:
        self._settle(now)
        if self._registration != "COMPLETED":
            raise Refused(409, "The product instance is not registered.")
        if self.pool.is_reachable:
            self._authorized_at = now

    def set_product(self, product: object) -> None:
        if product not in PRODUCTS:
            raise Refused(400, f"Unknown product license: {product!r}")
        if product == self._product:
            raise Refused(400, f"The product license {product} is already active.")
        self._product = str(product)

    def set_transport(self, ssms: str | None, proxy: dict[str, Any]) -> None:
        self._transport = {"ssms": ssms or SSMS, "proxy": proxy}

    def set_features(self, counts: dict[str, int]) -> None:
        limits = {BASE_FEATURE: 1, NODES_FEATURE: MAX_NODES}
        for feature, count in counts.items():
            if feature not in limits or not 0 <= count <= limits[feature]:
                raise Refused(400, f"The count of feature {feature} is out of range.")
        self._node_count = counts.get(NODES_FEATURE, self._node_count)

    def set_reservation(self, *, is_on: bool) -> None:
        if self._registration != "NOT_REGISTERED":
            raise Refused(409, "Reservation mode can only be changed while unregistered.")
        self._is_reservation = is_on

    # Time

    def _settle(self, now: float) -> None:
        while self._due is not None and self._due <= now:
            at, self._due = self._due, None
            if self._registration == "COMPLETED":
                self._authorization, self._authorized_at = "IN_COMPLIANCE", at
            else:
                self._decide(at)

    def _decide(self, at: float) -> None:
        if not self.pool.is_reachable:
            self._registration, self._authorization = "RETRY_IN_PROGRESS", "EVAL"
            self._failure = "Communication send error: Failed to connect to smartreceiver.cisco.com: timeout"
            self._due = at + self._pace.seconds(RETRY_SECONDS, "retry", self._name, self._attempts)
            return
        if self._token != self.pool.token:
            self._fail(f"Response error: The token '{self._token}' is not valid")
        elif not self.pool.claim(self._product_uuid, self._name):
            self._fail("Response error: The token has been used the maximum number of times")
        else:
            self._registration, self._registered_at = "COMPLETED", at
            self._token = None
            self._due = at + self._pace.seconds(AUTHORIZE_SECONDS, "authorize", self._name, self._attempts)

    def _fail(self, why: str) -> None:
        self._registration, self._authorization, self._failure = "FAILED", "EVAL", why
        self._token = None

    def _clear(self) -> None:
        self._registration, self._authorization = "NOT_REGISTERED", "INIT"
        self._attempted_at = self._failure = self._token = self._due = None
        self._registered_at = self._authorized_at = 0.0

    # Messages

    def _register_time(self, is_registered: bool) -> dict[str, Any]:
        """CML's quirks: after a success the failure is "OK", and nothing has `succeeded`."""
        success = "SUCCESS" if is_registered else "FAILED"
        return {
            "succeeded": None,
            "attempted": None if self._attempted_at is None else _time(self._attempted_at),
            "scheduled": None,
            "status": None,
            "failure": "OK" if is_registered else self._failure,
            "success": success,
        }

    def _features(self, is_authorized: bool) -> list[dict[str, Any]]:
        status = "IN_COMPLIANCE" if is_authorized else "INIT"
        if self._registration == "COMPLETED" and not is_authorized:
            status = "WAITING"
        return [
            _feature(BASE_FEATURE, "CML - Enterprise License", int(is_authorized), status, 1),
            _feature(
                NODES_FEATURE,
                "CML - Expansion Node License",
                self._node_count if is_authorized else 0,
                status if self._node_count else "INIT",
                MAX_NODES,
            ),
        ]


def _feature(feature_id: str, name: str, in_use: int, status: str, most: int) -> dict[str, Any]:
    return {
        "id": feature_id,
        "name": name,
        "description": f"{name} (simulated)",
        "in_use": in_use,
        "status": status,
        "version": "1.0",
        "min": 0,
        "max": most,
        "minEndDate": None,
        "maxEndDate": None,
    }


def _renewal(
    *, attempted: str | None, scheduled: str | None, is_success: bool, status: str | None
) -> dict[str, Any]:
    return {
        "succeeded": None,
        "attempted": attempted,
        "scheduled": scheduled,
        "status": status,
        "failure": None,
        "success": "SUCCESS" if is_success else "FAILED",
    }


def _time(at: float, days: float = 0) -> str:
    """Licensing writes times with a blank and without a zone."""
    return datetime.fromtimestamp(at + days * DAY, UTC).strftime("%Y-%m-%d %H:%M:%S")
