"""The lab of a session: its record, its steps, its nodes and its removal. All of it is bounded.

A session's document stays below 64 kB: texts are cut, steps are overwritten in place, and of very many nodes
those that have booted are left out first.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

MAX_NODES: Final = 500
MAX_NODE_BYTES: Final = 20_000
MAX_DETAIL_BYTES: Final = 300
MAX_PORTS: Final = 8_000
"""All that a worker has for sessions."""
BOOTED: Final = "BOOTED"
QUEUED: Final = "QUEUED"


class LabStep(StrEnum):
    """What the lablet controller does for a session, in this order."""

    LOOK = "look"
    INTENT = "intent"
    IMPORT = "import"
    RECORD = "record"
    CHECK = "check"
    START = "start"
    BOOT = "boot"
    ACCESS = "access"
    PROBE = "probe"
    RUN = "run"
    COLLECT = "collect"
    STOP = "stop"
    WIPE = "wipe"
    DELETE = "delete"
    PROVE = "prove"


class StepStatus(StrEnum):
    """How far a step is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


OVER: Final = frozenset({StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED})


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest try of a step."""

    status: StepStatus
    attempts: int = 0
    detail: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


class StepReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the lablet controller says of a step."""

    step: LabStep
    status: StepStatus
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    detail: Annotated[str, Meta(max_length=1_000)] = ""


class SessionLab(msgspec.Struct, frozen=True, kw_only=True):
    """The lab that a session may own. It is stored before the lab is imported."""

    title: str
    generation: int
    """Which import of the session this is."""
    intent_at: datetime
    instance_id: str | None = None
    """The instance of the worker that it is imported on."""
    lab_id: str | None = None
    """CML's id; None as long as an import may be under way."""
    imported_at: datetime | None = None
    started_at: datetime | None = None
    left_queue_at: datetime | None = None
    """When one of its nodes last left the queue in which CML starts them a few at a time."""
    booted_at: datetime | None = None
    is_adopted: bool = False
    """Its import had no answer; the lab was found by its marker."""
    claim_lost_at: datetime | None = None
    """Since when its worker does not hold its claim, so that others may get its room; None: it does."""


class ProbedPorts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the test of the granted ports found; nothing is known of a port that is in neither."""

    open: Annotated[tuple[int, ...], Meta(max_length=MAX_PORTS)] = ()
    refused: Annotated[tuple[int, ...], Meta(max_length=MAX_PORTS)] = ()

    def says(self, port: int) -> bool | None:
        """Whether the port takes connections; None if that is not known."""
        return True if port in self.open else False if port in self.refused else None


NOT_PROBED: Final = ProbedPorts()


class CleanupProof(StrEnum):
    """Why nothing of a lab is left."""

    LAB_ABSENT = "lab_absent"
    """CML, on the same instance, answers that there is no such lab."""
    WORKER_GONE = "worker_gone"
    """The instance with the lab is gone for good."""
    NEVER_IMPORTED = "never_imported"
    """No import was ever intended."""


class LabCleanup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the removal of the lab is."""

    is_stopped: bool = False
    is_wiped: bool = False
    is_deleted: bool = False
    is_worker_gone: bool = False
    is_stuck: bool = False
    """CML refuses the removal again and again; a person may be needed."""
    proof: CleanupProof | None = None
    """Recorded before the claim is released, so that a crash in between is repaired from it."""
    proven_at: datetime | None = None
    is_abandoned: bool = False
    """A person ended the session although its lab may exist."""


NOT_CLEANED: Final = LabCleanup()


def cut(text: str, limit: int) -> str:
    """The text in so many bytes at most."""
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= limit else encoded[: limit - 3].decode(errors="ignore") + "…"


def record_steps(
    steps: Mapping[LabStep, StepRecord], reports: tuple[StepReport, ...], *, now: datetime
) -> dict[LabStep, StepRecord]:
    """Every step with its newest try. A report that comes late, or again, changes nothing."""
    recorded = dict(steps)
    for report in reports:
        recorded[report.step] = _overwritten(recorded.get(report.step), report, now)
    return recorded


def _overwritten(before: StepRecord | None, report: StepReport, now: datetime) -> StepRecord:
    if before is not None and report.attempts < before.attempts:
        return before
    same_try = before if before is not None and before.attempts == report.attempts else None
    started_at = same_try.started_at if same_try else None
    if started_at is None and report.status is not StepStatus.PENDING:
        started_at = now
    ended_at = now if report.status in OVER else None
    if same_try and same_try.status is report.status:
        ended_at = same_try.ended_at
    return StepRecord(
        status=report.status,
        attempts=report.attempts,
        detail=cut(report.detail, MAX_DETAIL_BYTES),
        started_at=started_at,
        ended_at=ended_at,
    )


def restarted(record: StepRecord) -> StepRecord:
    """A step that the next lab begins anew; its tries count on."""
    return StepRecord(status=StepStatus.PENDING, attempts=record.attempts)


def times_of(lab: SessionLab, steps: Mapping[LabStep, StepRecord]) -> SessionLab:
    """The lab with the times at which its start was accepted and its nodes had booted."""
    return replace(lab, started_at=_end_of(steps, LabStep.START), booted_at=_end_of(steps, LabStep.BOOT))


def _end_of(steps: Mapping[LabStep, StepRecord], step: LabStep) -> datetime | None:
    record = steps.get(step)
    return record.ended_at if record is not None and record.status is StepStatus.COMPLETED else None


def has_left_queue(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether CML has begun to start a node that had to wait."""
    return any(state == QUEUED != after.get(label, QUEUED) for label, state in before.items())


def bounded_nodes(nodes: Mapping[str, str]) -> dict[str, str]:
    """The states of nodes by label, as many as there is room for: first those that have not booted."""
    kept: dict[str, str] = {}
    room = MAX_NODE_BYTES
    for label in sorted(nodes, key=lambda each: (nodes[each] == BOOTED, each))[:MAX_NODES]:
        room -= len(msgspec.json.encode({label: nodes[label]}))
        if room < 0:
            break
        kept[label] = nodes[label]
    return dict(sorted(kept.items()))
