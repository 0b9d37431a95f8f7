"""Routes requests to the functions that answer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from lcm.simulator.cml.refusal import Refused

if TYPE_CHECKING:
    from lcm.simulator.cml.accounts import User
    from lcm.simulator.cml.lab import Lab
    from lcm.simulator.cml.server import CmlServer

PREFIX: Final = "/api/v0/"

T = TypeVar("T")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as a server reads it."""

    method: str
    path: str
    parameters: Mapping[str, str] = {}
    authorization: str = ""
    body: bytes = b""


class Answer(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"


@dataclass(frozen=True)
class Call:
    """One request on its way to one server."""

    server: CmlServer
    query: Query
    now: float
    names: Mapping[str, str] = field(default_factory=dict)
    """The values of the route's path parameters."""
    caller: User | None = None
    token: str = ""

    @property
    def user(self) -> User:
        assert self.caller is not None, "only routes that need a token have a user"
        return self.caller

    @property
    def lab(self) -> Lab:
        """The lab that the path names, if this user may see it."""
        return self.server.visible_lab(self.user, self.names["lab_id"])

    def body(self, *, default: Any = None) -> Any:
        """The JSON body; refuses what is none."""
        if not self.query.body and default is not None:
            return default
        try:
            return msgspec.json.decode(self.query.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as mistake:
            raise Refused(400, f"Bad request: {mistake}") from None

    def fields(self, *, default: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON body, which must be an object."""
        body = self.body(default=default)
        if not isinstance(body, dict):
            raise Refused(400, "Bad request: the body must be an object")
        return body

    def read(self, kind: type[T]) -> T:
        """The JSON body, which must fit this schema."""
        try:
            return msgspec.json.decode(self.query.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as mistake:
            raise Refused(400, f"Bad request: {mistake}") from None

    def flag(self, name: str) -> bool | None:
        """A boolean of the query; None if it is absent."""
        value = self.query.parameters.get(name)
        return None if value is None else value.lower() == "true"

    def need_admin(self) -> None:
        if not self.user.admin:
            raise Refused(403, "User does not have permission to perform this operation.")


Handler = Callable[[Call], Any]
Route = tuple[str, str, Handler]
"""Method, path below the prefix with `{names}` for parameters, and handler."""


@dataclass
class _Branch:
    branches: dict[str, _Branch] = field(default_factory=dict)
    methods: dict[str, tuple[Any, tuple[str, ...]]] = field(default_factory=dict)


class Router:
    """All routes below a prefix, found by their segments."""

    def __init__(self, routes: Iterable[tuple[str, str, Any]], prefix: str = PREFIX) -> None:
        self._prefix = prefix
        self._root = _Branch()
        for method, path, handler in routes:
            branch, names = self._root, []
            for segment in path.split("/"):
                if segment.startswith("{"):
                    names.append(segment.strip("{}"))
                    segment = "{}"
                branch = branch.branches.setdefault(segment, _Branch())
            branch.methods[method] = (handler, tuple(names))

    def find(self, method: str, path: str) -> tuple[Any, dict[str, str]]:
        """The handler and the path parameters; refuses unknown paths and wrong methods."""
        if not path.startswith(self._prefix):
            raise _unknown(path)
        branch, open_segments = self._root, []
        for segment in path.removeprefix(self._prefix).rstrip("/").split("/"):
            named = branch.branches.get(segment)
            if named is None:
                named = branch.branches.get("{}")
                open_segments.append(segment)
            if named is None:
                raise _unknown(path)
            branch = named
        if not branch.methods:
            raise _unknown(path)
        if method not in branch.methods:
            raise Refused(405, "Method Not Allowed")
        handler, names = branch.methods[method]
        return handler, dict(zip(names, open_segments, strict=True))


def _unknown(path: str) -> Refused:
    return Refused(404, f"The requested URL {path} was not found on the server.")
