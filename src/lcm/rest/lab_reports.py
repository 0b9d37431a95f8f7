"""What the lablet controller reports of the labs on a worker, and what it is asked to do with them."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.lablet.listed_lab import CmlId, ListedLab
from lcm.domain.telemetry import LabRecord, Moment
from lcm.rest.lablet_reports import InstanceId

MAX_LABS = 1_000
MAX_DEFINITIONS = 500


class LabListingReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The labs of a worker at one moment."""

    instance_id: InstanceId
    """The instance whose CML was read."""
    taken_at: Moment
    is_full: bool
    """Every lab is in it. Any other listing proves no absence."""
    labs: Annotated[tuple[ListedLab, ...], Meta(max_length=MAX_LABS)] = ()
    unread: Annotated[tuple[CmlId, ...], Meta(max_length=MAX_LABS)] = ()
    """Labs that are there and could not be read."""


class LabListingReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """How many labs of each kind the worker has now."""

    session: int = 0
    foreign: int = 0
    adopted: int = 0
    leaked: int = 0
    orphaned: int = 0
    again_in_seconds: float | None = None
    """When another full listing confirms that a lab is leaked; null: none waits for that."""


class DefinitionsReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node definitions and images of a worker, all of them."""

    instance_id: InstanceId
    node_definitions: Annotated[tuple[CmlId, ...], Meta(max_length=MAX_DEFINITIONS)]
    images: Annotated[tuple[CmlId, ...], Meta(max_length=MAX_DEFINITIONS)]


class ConfigsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker whose stop waits for the running configurations of its nodes."""

    worker_id: str
    asked_at: datetime
    until: datetime
    """Later the worker is stopped all the same."""


class ConfigsExtracted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was extracted of a worker whose stop waits."""

    asked_at: datetime
    """Which request it is about."""
    extracted: Annotated[int, Meta(ge=0)]
    missed: Annotated[int, Meta(ge=0)]
    """Nodes that had booted and whose configuration CML did not extract."""


class LabWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the lablet controller has to do with labs that are not its sessions'."""

    items: list[LabRecord]
    """The labs of which something is requested."""
    unlisted_on: list[str]
    """The workers with a lab that no listing has shown yet and no session has recorded."""
    configs_wanted: list[ConfigsWanted] = []
    """The workers that are stopped as soon as the configurations of their nodes are extracted."""


class LabRequestOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a request."""

    asked_at: datetime
    """Which request it is about."""
    error: Annotated[str, Meta(max_length=1_000)] = ""
    """Empty: it was carried out."""
    is_over: bool = False
    """It failed and is not tried again."""


class LabGone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CML answered that the lab is absent."""

    instance_id: InstanceId
    asked_at: datetime
    """The request to remove it."""
