"""How people reach the lab of a session. None of it is part of a list, an event or a record."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lcm.domain.lablet.ports import PortKind
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import Timeslot

_PRINTABLE = r"^[^\x00-\x1f\x7f]+$"


class AccessLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The login that the nodes of a lab have; stored sealed, and shown only with the access to a session."""

    username: Annotated[
        str, Meta(min_length=1, max_length=64, pattern=_PRINTABLE, extra_json_schema={"writeOnly": True})
    ]
    password: Annotated[
        str, Meta(min_length=1, max_length=256, pattern=_PRINTABLE, extra_json_schema={"writeOnly": True})
    ]

    def __post_init__(self) -> None:
        if "\n" in self.username + self.password:  # which `$` admits at the end
            raise ValueError("a login has no line breaks")

    def __repr__(self) -> str:
        return "AccessLogin(…)"


class PortAccess(msgspec.Struct, frozen=True, kw_only=True):
    """One port that leads to a node of the lab."""

    label: str
    """The node, and its protocol if it has several ports; no other port of the session has it."""
    node: str
    node_definition: str
    kind: PortKind
    protocol: str
    """`vnc`, `http`, `https`, `rdp`, `ssh`, `serial` (speak telnet), `telnet`, `tcp` or `udp`."""
    host: str
    port: int
    uri: str | None = None
    """None if LCM does not know what is spoken there."""
    is_reachable: bool | None = None
    """Whether the worker took a connection before the session was READY; None if that is not known."""
    username: str | None = None
    """Of the node, if the definition has a login."""
    password: str | None = None

    def __repr__(self) -> str:
        return f"PortAccess({self.label!r}, …)"


class SessionAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The lab of a session that is READY or RUNNING, as its owner reaches it now."""

    session_id: str
    status: SessionStatus
    worker_id: str
    host: str
    """The present address of the worker: it changes when the worker is stopped and started."""
    lab_id: str
    lab_url: str
    """The page of the lab in CML."""
    valid_until: datetime | None
    """The end of the session."""
    probed_at: datetime | None
    """When the ports were tested; None if they were not."""
    ports: list[PortAccess]
    """By node; of one node in the order vnc, http, https, rdp, ssh, serial, telnet."""


class SeatAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The newest session of a seat."""

    seat: int
    """From 1."""
    owner_id: str
    session_id: str
    status: SessionStatus
    access: SessionAccess | None
    note: str = ""
    """Why there is no access, and what to do."""


class BatchAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The sheet of a class: one seat after the other."""

    id: str
    name: str
    definition_name: str
    definition_version: str
    timeslot: Timeslot | None
    seats: list[SeatAccess]

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Return the table under COLUMNS: a row for each seat and port, one for a seat without."""
        for seat in self.seats:
            head = (seat.seat, seat.owner_id, seat.session_id, seat.status)
            access = seat.access
            ports = access.ports if access is not None else []
            tail = (access.lab_url, access.valid_until, "") if access is not None else (None, None, seat.note)
            for port in ports:
                yield *head, *(getattr(port, name) for name in PORT_COLUMNS), *tail
            if not ports:
                yield *head, *(None for _ in PORT_COLUMNS), *tail


PORT_COLUMNS: Final = (
    *("label", "node", "protocol", "host", "port", "uri"),
    *("username", "password", "is_reachable"),
)
COLUMNS: Final = ("seat", "owner", "session", "status", *PORT_COLUMNS, "lab_url", "valid_until", "note")
