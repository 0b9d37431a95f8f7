"""The Python client of LCM, synchronous (`Lcm`) and asynchronous (`AsyncLcm`).

    from lcm.client import Lcm

    with Lcm() as lcm:
        lcm.workers.create("ccna", template="kvm-small")
        worker = lcm.workers.wait("ccna", "ready")

Names are loaded when they are first used: the synchronous client does without the libraries of the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcm.client.aio.client import AsyncLcm
    from lcm.client.aio.link import AsyncEvents
    from lcm.client.contexts import Context, find_context
    from lcm.client.errors import (
        AccessDenied,
        ClientError,
        Conflict,
        ContextError,
        Invalid,
        NotFound,
        Refused,
        ServerFault,
        SignInFailed,
        TooManyRequests,
        Unreachable,
        WaitFailed,
        WaitTimedOut,
    )
    from lcm.client.events import Event
    from lcm.client.goals import SessionGoal, Standing, WorkerGoal
    from lcm.client.sync.client import Lcm
    from lcm.client.sync.link import Events

_MODULE_OF = {
    "aio.client": ("AsyncLcm",),
    "aio.link": ("AsyncEvents",),
    "contexts": ("Context", "find_context"),
    "errors": (
        *("AccessDenied", "ClientError", "Conflict", "ContextError", "Invalid", "NotFound", "Refused"),
        *("ServerFault", "SignInFailed", "TooManyRequests", "Unreachable", "WaitFailed", "WaitTimedOut"),
    ),
    "events": ("Event",),
    "goals": ("SessionGoal", "Standing", "WorkerGoal"),
    "sync.client": ("Lcm",),
    "sync.link": ("Events",),
}
_PLACES = {name: module for module, names in _MODULE_OF.items() for name in names}

__all__ = [
    "AccessDenied",
    "AsyncEvents",
    "AsyncLcm",
    "ClientError",
    "Conflict",
    "Context",
    "ContextError",
    "Event",
    "Events",
    "Invalid",
    "Lcm",
    "NotFound",
    "Refused",
    "ServerFault",
    "SessionGoal",
    "SignInFailed",
    "Standing",
    "TooManyRequests",
    "Unreachable",
    "WaitFailed",
    "WaitTimedOut",
    "WorkerGoal",
    "find_context",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
