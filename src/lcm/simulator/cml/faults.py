"""Faults on demand for simulated CML servers, as `POST {control_url}/cml/faults` takes it.

Some kinds happen once, some last until the faults are cleared; each says which. A fault names a
worker by its instance id or one of its addresses, or affects all of them.
"""

from typing import Any, ClassVar

import msgspec

from lcm.simulator.cml.lab_faults import NeverBoots, RefuseLab, SlowStop, StopsAfterBoot


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    worker: str | None = None
    """Instance id, private or public address; null: every worker."""


class FeedFault(_Fault, frozen=True, kw_only=True):
    """A fault of the live feed."""


class Close(FeedFault, frozen=True, kw_only=True, tag="close"):
    """Close every WebSocket now; `lasting`: also every new one, as soon as it has shown its token."""

    code: int = 1000
    reason: str = ""
    lasting: bool = False

    ABNORMAL: ClassVar = 1006
    """No close frame at all: the connection is cut."""


class Silence(FeedFault, frozen=True, kw_only=True, tag="silence"):
    """Send nothing, on open sockets and new ones, until cleared."""

    answer_pings: bool = True


class Garbage(FeedFault, frozen=True, kw_only=True, tag="garbage"):
    """Send invalid frames now; `lasting`: instead of every event until cleared."""

    frames: int = 9
    lasting: bool = False


class Oversize(FeedFault, frozen=True, kw_only=True, tag="oversize"):
    """Send one huge frame now; `lasting`: also to every new WebSocket."""

    size: int = 2 * 1024 * 1024
    lasting: bool = False


class Greeting(FeedFault, frozen=True, kw_only=True, tag="greeting"):
    """Send this event first to every new WebSocket, as another release might do."""

    event: dict[str, Any]


class _Request(_Fault, frozen=True, kw_only=True):
    path: str = "/api/v0/"
    """Prefix of the affected paths."""
    method: str | None = None
    """Null: every method."""
    count: int | None = None
    """How many requests it affects on each worker; null: all, until cleared."""


class Http(_Request, frozen=True, kw_only=True, tag="http"):
    """Requests are answered with this status; a WebSocket's handshake is a request to `/ws/ui`."""

    status: int | None
    """Null: the connection is cut without an answer."""
    applied: bool = False
    """The request takes effect before; only its answer is lost."""


class Answered(_Request, frozen=True, kw_only=True, tag="answer"):
    """Requests are answered with this document, as another release might do."""

    status: int = 200
    body: Any


class Late(_Request, frozen=True, kw_only=True, tag="late"):
    """Requests take effect that much later, even if their clients have left."""

    seconds: float


class Slow(_Fault, frozen=True, kw_only=True, tag="slow"):
    """Delay answers by that much, until cleared; the requests take effect at once."""

    seconds: float
    path: str = "/"


class ExpiredToken(_Fault, frozen=True, kw_only=True, tag="expired_token"):
    """Invalidate every token issued so far; `lasting`: also every new one, from its first moment."""

    lasting: bool = False


class Certificate(_Fault, frozen=True, kw_only=True, tag="certificate"):
    """Present another certificate to new connections. Permanent: clearing does not restore the old one."""


class Refuse(_Fault, frozen=True, kw_only=True, tag="refuse"):
    """Break connections and refuse new ones, until cleared."""


class NotReady(_Fault, frozen=True, kw_only=True, tag="not_ready"):
    """CML reports `ready: false`, until cleared: none of its compute hosts can start nodes."""


Fault = (
    Close
    | Silence
    | Garbage
    | Oversize
    | Greeting
    | Http
    | Answered
    | Late
    | Slow
    | ExpiredToken
    | Certificate
    | Refuse
    | NotReady
    | NeverBoots
    | StopsAfterBoot
    | SlowStop
    | RefuseLab
)
"""Distinguished by `kind`."""
