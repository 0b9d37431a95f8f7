"""The services behind `/api/internal`: the keys of each, and the routes that it needs.

A key that services share says nothing about its sender; a key of its own binds a service to its name and to
its routes.
"""

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lcm.rest.schemas import CONTROL_PLANE, LABLET_CONTROLLER, RESOURCE_SCHEDULER, WORKER_CONTROLLER

_PREFIX: Final = "/api/internal"

Route = tuple[str, str]
"""Method and path template."""


def _routes(*lines: str) -> frozenset[Route]:
    pairs = (line.split() for line in lines)
    return frozenset((method, _PREFIX + path) for method, path in pairs)


ROUTES_OF: Final[Mapping[str, frozenset[Route]]] = {
    WORKER_CONTROLLER: _routes(
        "POST /leadership",
        "POST /processes",
        "GET /workers",
        "GET /workers/{worker_id}",
        "GET /worker-templates/by-name/{name}",
        "POST /workers/{worker_id}/status",
        "POST /workers/{worker_id}/verify",
        "POST /workers/{worker_id}/launch-intent",
        "POST /workers/{worker_id}/launch-intent/withdraw",
        "POST /workers/{worker_id}/ec2-details",
        "POST /workers/{worker_id}/cml-data",
        "POST /workers/{worker_id}/ws-status",
        "POST /workers/metrics",
        "POST /workers/{worker_id}/metrics",
        "POST /workers/{worker_id}/activity-events",
        "POST /workers/{worker_id}/labs/{lab_id}/stats",
        "POST /workers/{worker_id}/lab-state-change",
        "POST /workers/{worker_id}/detect-idle",
        "GET /workers/{worker_id}/idle-status",
        "POST /workers/{worker_id}/drain",
        "POST /scaling/audit",
        "POST /workers/{worker_id}/license/start-registration",
        "POST /workers/{worker_id}/license/complete-registration",
        "POST /workers/{worker_id}/license/fail-registration",
        "POST /workers/{worker_id}/license/observe-registration",
        "POST /workers/{worker_id}/license/start-deregistration",
        "POST /workers/{worker_id}/license/complete-deregistration",
        "POST /workers/{worker_id}/license/fail-deregistration",
        "GET /workers/{worker_id}/license-token",
        "GET /workers/{worker_id}/cml-login",
        "GET /settings/discovery",
        "POST /workers/bulk-import",
        "POST /workers/cleanup",
    ),
    RESOURCE_SCHEDULER: _routes(
        "POST /leadership",
        "POST /processes",
        "GET /scheduling/snapshot",
        "POST /lablet-sessions/schedule",
        "POST /lablet-sessions/waiting",
        "POST /lablet-sessions/{session_id}/reject",
        "POST /lablet-sessions/move-windows",
        "POST /placements",
        "POST /workers/scale-up",
        "POST /workers/{worker_id}/start",
        "POST /workers/{worker_id}/cancel-drain",
    ),
    LABLET_CONTROLLER: _routes(
        "POST /leadership",
        "POST /processes",
        "GET /workers",
        "GET /workers/{worker_id}",
        "GET /workers/{worker_id}/cml-login",
        "GET /fleet-identity",
        "GET /lablet-sessions",
        "GET /lablet-sessions/{session_id}",
        "GET /lablet-sessions/{session_id}/topology",
        "POST /lablet-sessions/progress",
        "POST /lablet-sessions/{session_id}/status",
        "POST /lablet-sessions/{session_id}/lab-intent",
        "POST /lablet-sessions/{session_id}/lab",
        "POST /lablet-sessions/{session_id}/evidence",
        "POST /lablet-sessions/{session_id}/unschedule",
        "POST /lablet-sessions/{session_id}/cleaned",
        "GET /labs/work",
        "POST /workers/{worker_id}/labs",
        "POST /workers/{worker_id}/definitions",
        "POST /workers/{worker_id}/configs-extracted",
        "GET /workers/{worker_id}/labs/{lab_id}",
        "POST /workers/{worker_id}/labs/{lab_id}/outcome",
        "POST /workers/{worker_id}/labs/{lab_id}/gone",
    ),
    CONTROL_PLANE: _routes("GET /peers/feed"),
}
"""The routes that a service with a key of its own may use. All others are for the shared key only."""


@dataclass(frozen=True)
class ServiceKeys:
    """The keys with which services call. During a rotation a service has several; the first one is sent."""

    shared: tuple[str, ...] = field(repr=False)
    """The key of every service that has none of its own."""
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def is_bound(self, service: str) -> bool:
        """Return whether the service has a key of its own, and so only its routes."""
        return service in self.own

    def opens(self, key: str, service: str) -> bool:
        """Return whether this key is valid under this name of a service, compared in constant time."""
        if service in self.own:
            return _is_one_of(key, self.own[service])
        if self.own and service not in ROUTES_OF:
            return False  # where services have keys, a name of none of them is a mistake
        return _is_one_of(key, self.shared)

    def sent_by(self, service: str) -> str:
        """Return the key with which this service calls; empty if there is none."""
        keys = self.own.get(service, self.shared)
        return keys[0] if keys else ""

    def allows(self, service: str, method: str, path: str) -> bool:
        """Return whether the service may use a route, named by the template of its path."""
        return not self.is_bound(service) or (method, path) in ROUTES_OF.get(service, frozenset())

    def all(self) -> Iterator[str]:
        """Yield every valid key, to keep them out of logs."""
        yield from self.shared
        for keys in self.own.values():
            yield from keys


def _is_one_of(key: str, valid: Iterable[str]) -> bool:
    """Compare with all of them, so that the time says nothing about which one it is."""
    matches = [hmac.compare_digest(key.encode(), one.encode()) for one in valid]
    return key != "" and any(matches)
