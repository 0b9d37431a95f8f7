"""What generators of clients need of the OpenAPI document: names of operations and the access each needs."""

import re
from typing import Any, Final

from lcm.control_plane.access.identity import COOKIE
from lcm.rest.schemas import API_KEY_HEADER

SECURITY_SCHEMES: Final = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token of LCM, or one of the identity provider.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The cookie of a signed-in browser; over TLS its name begins with `__Host-`.",
    },
    "controller": {
        "type": "apiKey",
        "in": "header",
        "name": API_KEY_HEADER,
        "description": "The key of a service, beside its name in `X-LCM-Service`; for internal routes alone.",
    },
}
_OF_PEOPLE: Final[list[dict[str, list[str]]]] = [{"token": []}, {"session": []}]
_OF_CONTROLLERS: Final[list[dict[str, list[str]]]] = [{"controller": []}]
_ARTICLES: Final = frozenset({"a", "an", "the"})


def describe_operations(schema: dict[str, Any]) -> None:
    """Give each operation a name from its summary, which is part of the contract, and what access it needs.

    Internal routes are marked `x-internal`: they are for LCM's own processes and may change at any time.
    """
    schema["components"]["securitySchemes"] = SECURITY_SCHEMES
    for path, operations in schema["paths"].items():
        is_internal = path.startswith("/api/internal/")
        for operation in operations.values():
            name = operation_id(operation["summary"])
            operation["operationId"] = f"internal_{name}" if is_internal else name
            if is_internal:
                operation["x-internal"] = True
            needs_access = "401" in operation["responses"]
            operation["security"] = (_OF_CONTROLLERS if is_internal else _OF_PEOPLE) if needs_access else []


def operation_id(summary: str) -> str:
    """Return the name of an operation: "Get a worker's load" is get_worker_load."""
    words = re.findall(r"[a-z0-9]+", summary.lower().replace("'s", ""))
    return "_".join(word for word in words if word not in _ARTICLES)
