"""The messages about lablet sessions between the control plane, its controllers and people."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.errors import PlacementRefused, RequestError
from lcm.domain.lablet.definition import Collect, Demand
from lcm.domain.lablet.evidence import Evidence
from lcm.domain.lablet.lab import LabCleanup, LabStep, SessionLab, StepRecord
from lcm.domain.lablet.session import (
    Batch,
    LabletSession,
    Nomination,
    SessionDesiredStatus,
    SessionHistoryEntry,
    WaitCode,
    WaitsFor,
)
from lcm.domain.lablet.states import EndReason, SessionStatus
from lcm.domain.lablet.timeslot import Timeslot

MAX_ORDERS = 500
MAX_UPCOMING = 50


class PlacementOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session, the worker it is to be placed on, and which attempt of the session this is."""

    session_id: str
    worker_id: str
    attempt: Annotated[int, Meta(ge=1)]


class PlacementOrders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    orders: Annotated[tuple[PlacementOrder, ...], Meta(max_length=MAX_ORDERS)]


class PlacementOutcome(StrEnum):
    """What became of an order."""

    SCHEDULED = "scheduled"
    REFUSED = "refused"
    """The worker does not take it; another may."""
    CONFLICT = "conflict"
    """The session has changed; read it again."""


class PlacementResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one order."""

    session_id: str
    outcome: PlacementOutcome
    worker_id: str | None = None
    label: str = ""
    detail: str = ""
    has_used_retries: bool = False
    """This was the last of its retries: it has failed or, if it is booked, is tried only now and then."""

    @staticmethod
    def of(session: LabletSession) -> "PlacementResult":
        return PlacementResult(
            session_id=session.id, outcome=PlacementOutcome.SCHEDULED, worker_id=session.worker_id
        )

    @staticmethod
    def refused(session_id: str, error: RequestError, *, has_used_retries: bool = False) -> "PlacementResult":
        label = error.label if isinstance(error, PlacementRefused) else ""
        return PlacementResult(
            session_id=session_id,
            outcome=PlacementOutcome.REFUSED,
            label=label,
            detail=str(error),
            has_used_retries=has_used_retries,
        )

    @staticmethod
    def conflict(session_id: str, error: RequestError) -> "PlacementResult":
        return PlacementResult(session_id=session_id, outcome=PlacementOutcome.CONFLICT, detail=str(error))


class PlacementResults(msgspec.Struct, frozen=True, kw_only=True):
    results: tuple[PlacementResult, ...]


class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session waits, and the worker that it counts on."""

    session_id: str
    code: WaitCode
    text: Annotated[str, Meta(max_length=1000)]
    nominated: Nomination | None = None


class WaitingReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    items: Annotated[tuple[Waiting, ...], Meta(max_length=MAX_ORDERS)]


class SessionRejected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session can never be placed."""

    reason: Annotated[str, Meta(min_length=1, max_length=1000)]


class Unscheduled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session leaves its worker, decided on exactly the generation that was read."""

    reason: Annotated[str, Meta(min_length=1, max_length=1000)]
    generation: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    is_worker_lost: bool = False


class WindowDue(msgspec.Struct, frozen=True, kw_only=True):
    """When time alone changes a session next: its window opens, it is missed, it is warned, it is over."""

    session_id: str
    status: SessionStatus
    at: datetime


class WindowsMoved(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions whose window was opened, that missed it, and whose time is over."""

    opened: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    next_at: datetime | None = None
    """When time alone changes a session next."""
    upcoming: tuple[WindowDue, ...] = ()
    """The first of what time alone changes, in their order."""


class LabletSessionRecords(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LabletSession]
    answered_at: datetime | None = None
    """By the control plane's clock, which judges their times; None from a version without it."""


class LabletSessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The public view of a lablet session."""

    id: str
    definition_id: str
    definition_name: str
    definition_version: str
    owner_id: str
    reservation_id: str | None
    retry_of: str | None
    """The failed session that this one repeats."""
    batch: Batch | None
    priority: int
    timeslot: Timeslot | None
    demand: Demand
    max_duration_minutes: int
    collect: Collect
    version: int
    generation: int
    status: SessionStatus
    desired_status: SessionDesiredStatus
    status_reason: str
    created_at: datetime
    updated_at: datetime
    scheduled_at: datetime | None
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    ends_at: datetime | None
    ending_soon_minutes: int | None
    """The last warning of this end that was given."""
    worker_id: str | None
    nominated: Nomination | None
    waits_for: WaitsFor | None
    place_attempts: int
    next_try_at: datetime | None
    end_reason: EndReason | None
    end_asked_by: str | None
    end_asked_at: datetime | None
    lab: SessionLab | None
    steps: dict[LabStep, StepRecord]
    nodes: dict[str, str]
    cleanup: LabCleanup
    evidence: tuple[Evidence, ...]

    @staticmethod
    def of(session: LabletSession) -> "LabletSessionView":
        return LabletSessionView(**{name: getattr(session, name) for name in _VIEWED})


_VIEWED = LabletSessionView.__struct_fields__


class LabletSessionPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LabletSessionView]
    next: str | None = None
    """The cursor of the next page."""


class EvidenceList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Evidence, ...]


class SessionHistory(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[SessionHistoryEntry, ...]
