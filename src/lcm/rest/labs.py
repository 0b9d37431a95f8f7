"""The labs on all workers, as people and the dashboard see them."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.lablet.listed_lab import LabAction, LabAdoption, LabKind, LabRequest, LeakReason


class LabView(msgspec.Struct, frozen=True, kw_only=True):
    """One lab on one worker."""

    worker_id: str
    worker_name: str
    lab_id: str
    title: str | None
    state: str | None
    """CML's: DEFINED_ON_CORE, STARTED or STOPPED."""
    kind: LabKind | None
    """Whose it is; null as long as no discovery has shown it and no session has recorded it."""
    session_id: str | None
    """The lablet session that owns it; of a leaked lab the one that its marker names."""
    definition_name: str | None
    """Of its session; of an adopted lab the one that it was adopted as."""
    owner: str
    """The CML user."""
    node_count: int | None
    running_nodes: int
    tag_ports: tuple[int, ...]
    """The outside ports in the tags of its nodes."""
    modified_at: datetime | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    """When a full listing showed it the last time."""
    missing_since: datetime | None
    leak: LeakReason | None
    """Why it is leaked."""
    removed_from: datetime | None
    """When LCM removes a leaked lab, if nothing changes; null: it does not."""
    leak_kept: str
    """Why LCM does not remove a leaked lab."""
    request: LabRequest | None
    """What is requested of it, and the error of the last try."""
    adoption: LabAdoption | None
    """Who keeps it."""
    possible_actions: tuple[LabAction, ...]


class ListedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """When the labs of a worker that runs were listed."""

    worker_id: str
    worker_name: str
    listed_at: datetime | None
    is_partial: bool
    """LCM's account is no administrator of this CML: labs may be missing, and none are removed."""


class LabPage(msgspec.Struct, frozen=True, kw_only=True):
    """Labs by worker and title."""

    items: list[LabView]
    next: str | None = None
    """The cursor of the next page."""
    workers: list[ListedWorker]


class LabAdoptionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the lab is adopted as."""

    definition: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """The name of the lablet definition that it is a lab of: what that needs is kept free for it."""
    version: Annotated[str, Meta(min_length=1, max_length=20)] | None = None
    """The version of the definition; without one the newest that is active."""


class LabRemoval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The confirmation to remove a lab."""

    title: Annotated[str, Meta(max_length=200)] | None = None
    """The title of the lab, required for one that people keep: a foreign or an adopted one."""
