"""What people send about lablet definitions, sessions and classes."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain import template
from lcm.domain.errors import InvalidTimeslot
from lcm.domain.lablet.definition import (
    MAX_NAME_LENGTH,
    NAME_PATTERN,
    NO_OPTIONS,
    VERSION_PATTERN,
    DefinitionOptions,
)
from lcm.domain.lablet.timeslot import Timeslot, book_in_zone
from lcm.rest.lablet_access import AccessLogin
from lcm.rest.scheduling import MAX_SEATS

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=NAME_PATTERN)]
Version = Annotated[str, Meta(max_length=20, pattern=VERSION_PATTERN)]
Id = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
FileSet = template.Name
LabYaml = Annotated[str, Meta(description="The topology, as CML exports it; at most 1 MiB.")]


class NewDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The definition to create. Its needs are computed from the topology."""

    name: Name
    lab_yaml: LabYaml
    version: Version = "1.0.0"
    options: DefinitionOptions = NO_OPTIONS
    access: AccessLogin | None = None
    """The login that people get with a session; it is never shown with the definition."""
    file_set: FileSet | None = None
    """The set of fleet files that it belongs to; `lcm apply` sets it."""


class NextDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the next version."""

    lab_yaml: LabYaml
    options: DefinitionOptions | None = None
    """None: those of the version before."""
    access: AccessLogin | None = None
    """None: that of the version before."""


class TopologyText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topology to analyse."""

    lab_yaml: LabYaml


class NewTimeslot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a session is booked: two moments with an offset, or two local times of a named zone."""

    start: datetime
    end: datetime
    zone: Annotated[str, Meta(max_length=64)] | None = None
    """As in Europe/Berlin; the zone in which times are shown."""

    def booked(self) -> Timeslot:
        """Return the timeslot in UTC. Raises InvalidTimeslot."""
        try:
            if self.zone is not None and self.start.tzinfo is None and self.end.tzinfo is None:
                return book_in_zone(self.start, self.end, self.zone)
            if self.start.tzinfo is not None and self.end.tzinfo is not None:
                start, end = self.start.astimezone(UTC), self.end.astimezone(UTC)
                return Timeslot(start=start, end=end, zone=self.zone or "UTC")
        except OverflowError:
            raise InvalidTimeslot("the timeslot is out of range; choose times of this century") from None
        raise InvalidTimeslot(
            "write both times with an offset, as in 2026-01-31T09:00:00Z, or both without and name the zone"
        )


class _DefinitionChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which definition: an id, or a name with or without a version."""

    definition_id: Id | None = None
    definition: Name | None = None
    """A name; the newest active version of it, unless `version` names another."""
    version: Version | None = None
    timeslot: NewTimeslot | None = None
    """None: as soon as possible."""
    aws_region: Annotated[str, Meta(max_length=63)] | None = None

    def __post_init__(self) -> None:
        if (self.definition_id is None) == (self.definition is None):
            raise ValueError("name either definition_id or definition")
        if self.version is not None and self.definition is None:
            raise ValueError("version goes with definition, not with definition_id")


class NewSession(_DefinitionChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session to create."""

    reservation_id: Id | None = None
    """An id of the booking elsewhere; it has one session."""
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    """Orders sessions that are due in the same minute; None: that of the definition."""


class NewBatch(_DefinitionChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The class to create."""

    name: Name
    count: Annotated[int, Meta(ge=1, le=MAX_SEATS)]
    all_or_nothing: bool = False
    """Place no seat before each has a worker."""
    owners: Annotated[tuple[Id, ...], Meta(max_length=MAX_SEATS)] = ()
    """The owner of each seat; empty: the caller owns all."""
    file_set: FileSet | None = None
    """The set of fleet files that it belongs to; `lcm apply` sets it."""

    def __post_init__(self) -> None:
        _DefinitionChoice.__post_init__(self)
        if self.owners and len(self.owners) != self.count:
            raise ValueError(f"owners names {len(self.owners)} for {self.count} seats; name one per seat")


class NewEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The later end of a timeslot."""

    end: datetime

    def moment(self) -> datetime:
        """Return the end in UTC. Raises InvalidTimeslot."""
        if self.end.tzinfo is None:
            raise InvalidTimeslot("the end needs an offset, as in 2026-01-31T09:00:00Z")
        try:
            return self.end.astimezone(UTC)
        except OverflowError:
            raise InvalidTimeslot("the end is out of range; choose a time of this century") from None
