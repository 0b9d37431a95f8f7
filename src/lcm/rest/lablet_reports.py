"""The messages of the lablet controller: what it decided for a session, and what it observed of its lab."""

from typing import Annotated

import msgspec
from msgspec import Meta

from lcm.domain.lablet.evidence import MAX_PACKED_BYTES
from lcm.domain.lablet.lab import CleanupProof, LabCleanup, ProbedPorts, StepReport
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import EndReason, SessionStatus
from lcm.rest.schemas import Problem

MAX_REPORTS = 500

Reason = Annotated[str, Meta(min_length=1, max_length=1000)]
Counter = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Generation = Annotated[int, Meta(ge=1, le=999_999_999)]
CmlId = Annotated[str, Meta(min_length=1, max_length=100)]
InstanceId = Annotated[str, Meta(max_length=100)]


class SessionMove(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "target": "to"},
):
    """The next status of a session, decided on exactly the generation that was read."""

    source: SessionStatus
    target: SessionStatus
    reason: Reason
    generation: Counter
    end_reason: EndReason | None = None
    """Why it ends, if no end was requested."""


class ImportIntent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lab is about to be imported."""

    attempt: Counter
    generation: Generation
    """One higher than the last import of the session."""
    is_previous_gone: bool = False
    """The lab of the last import is proven gone."""


class LabImported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CML's id of a lab that was imported, or found by its marker."""

    generation: Generation
    lab_id: CmlId
    is_adopted: bool = False


class SessionProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps and nodes of a session that changed; a field that is left out stays as it is."""

    session_id: Annotated[str, Meta(max_length=100)]
    attempt: Counter
    generation: Counter
    """The import that this is about; 0 before the first of this attempt."""
    steps: Annotated[tuple[StepReport, ...], Meta(max_length=20)] = ()
    nodes: dict[Annotated[str, Meta(max_length=256)], Annotated[str, Meta(max_length=32)]] | None = None
    """The state of every node by its label."""
    probed: ProbedPorts | None = None
    cleanup: LabCleanup | None = None


class ProgressReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    items: Annotated[tuple[SessionProgress, ...], Meta(max_length=MAX_REPORTS)]


class ProgressReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that have moved on, so that what was reported of them was not recorded."""

    ignored: tuple[str, ...] = ()


class LabCleaned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing is left of the lab of an attempt, and why that is certain."""

    worker_id: Annotated[str, Meta(max_length=100)]
    attempt: Counter
    generation: Counter
    """The newest import of the attempt; 0 if there was none."""
    proof: CleanupProof
    instance_id: InstanceId | None = None
    """The instance whose CML answered that the lab is absent."""


class EvidenceCollected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was collected of a lab that ends."""

    attempt: Counter
    generation: Generation
    packed: Annotated[bytes, Meta(min_length=1, max_length=MAX_PACKED_BYTES)]
    """The topology as text, compressed by zlib."""
    detail: Annotated[str, Meta(max_length=1000)] = ""
    """What is missing in it."""


class AbandonRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a person gives a lab up."""

    reason: Reason


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """The id that marks the labs of this fleet."""

    fleet_id: str


class SessionProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A refusal with the present record, so that the caller needs no second read."""

    current: LabletSession | None = None
