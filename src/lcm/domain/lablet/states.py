"""The lifecycle of a lablet session as a table.

The control plane refuses every change that is not a row here; docs/reference/session-states.md is generated
from it. An ended state proves that nothing is left: no lab, and no claim of this attempt.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class SessionStatus(StrEnum):
    """The status of a lablet session."""

    PENDING = "pending"
    PENDING_SCHEDULING = "pending_scheduling"
    SCHEDULED = "scheduled"
    INSTANTIATING = "instantiating"
    READY = "ready"
    RUNNING = "running"
    COLLECTING = "collecting"
    GRADING = "grading"
    STOPPING = "stopping"
    ARCHIVED = "archived"
    TERMINATED = "terminated"
    EXPIRED = "expired"
    FAILED = "failed"

    @classmethod
    def _missing_(cls, value: object) -> "SessionStatus | None":
        """Statuses are stored in lower case and read in any."""
        name = value.lower() if isinstance(value, str) else None
        return next((status for status in cls if status.value == name), None)


class EndReason(StrEnum):
    """Why a session ends; it decides the status in which it ends."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"


class Owner(StrEnum):
    """The service that decides a transition."""

    CONTROL_PLANE = "control plane"
    RESOURCE_SCHEDULER = "resource scheduler"
    LABLET_CONTROLLER = "lablet controller"


PENDING: Final = SessionStatus.PENDING
PENDING_SCHEDULING: Final = SessionStatus.PENDING_SCHEDULING
SCHEDULED: Final = SessionStatus.SCHEDULED
INSTANTIATING: Final = SessionStatus.INSTANTIATING
READY: Final = SessionStatus.READY
RUNNING: Final = SessionStatus.RUNNING
COLLECTING: Final = SessionStatus.COLLECTING
GRADING: Final = SessionStatus.GRADING
STOPPING: Final = SessionStatus.STOPPING
ARCHIVED: Final = SessionStatus.ARCHIVED
TERMINATED: Final = SessionStatus.TERMINATED
EXPIRED: Final = SessionStatus.EXPIRED
FAILED: Final = SessionStatus.FAILED

MEANING: Final = {
    PENDING: "Booked; its window is not open yet.",
    PENDING_SCHEDULING: "It waits for a worker.",
    SCHEDULED: "A worker has its claim; the lab is not due yet.",
    INSTANTIATING: "The lab is imported and started; not every node has booted.",
    READY: "Every node has booted.",
    RUNNING: "The timeslot has begun, or the lab was used.",
    COLLECTING: "Configurations are collected before the lab is removed.",
    GRADING: "A grading service judges what was collected.",
    STOPPING: "The lab is stopped, wiped and deleted; then the session ends.",
    ARCHIVED: "Ended as booked; nothing is left.",
    TERMINATED: "Cancelled by a person; nothing is left.",
    EXPIRED: "Its time passed; nothing is left.",
    FAILED: "It could not be run; nothing is left.",
}

COLOR: Final = {
    PENDING: "grey",
    PENDING_SCHEDULING: "orange",
    SCHEDULED: "blue",
    INSTANTIATING: "orange",
    READY: "green",
    RUNNING: "green",
    COLLECTING: "blue",
    GRADING: "blue",
    STOPPING: "fading",
    ARCHIVED: "grey",
    TERMINATED: "grey",
    EXPIRED: "purple",
    FAILED: "red",
}
"""The color of each status in the dashboard: `fading` is grey with an orange dot."""

ENDED_BY: Final = {
    EndReason.COMPLETED: ARCHIVED,
    EndReason.CANCELLED: TERMINATED,
    EndReason.EXPIRED: EXPIRED,
    EndReason.FAILED: FAILED,
}
ENDED: Final = frozenset(ENDED_BY.values())
WITHOUT_CLAIM: Final = frozenset({PENDING, PENDING_SCHEDULING})
OWNS_LAB: Final = (INSTANTIATING, READY, RUNNING, COLLECTING, GRADING)
IN_USE: Final = frozenset({READY, RUNNING})
"""People reach the lab."""


class SessionTransition(NamedTuple):
    """One row: an allowed change, the service that decides it, and its reason."""

    source: SessionStatus
    target: SessionStatus
    owner: Owner
    because: str
    only_if_worker_lost: bool = False


CPA: Final = Owner.CONTROL_PLANE
SCHEDULER: Final = Owner.RESOURCE_SCHEDULER
LABLETS: Final = Owner.LABLET_CONTROLLER
WORKER_LOST: Final = True

Row = SessionTransition

INITIAL: Final = (
    (PENDING, CPA, "created for a timeslot whose window is not open"),
    (PENDING_SCHEDULING, CPA, "created to start as soon as possible"),
)

# fmt: off
TRANSITIONS: Final = (
    #   from                to                  decided by because
    Row(PENDING,            PENDING_SCHEDULING, CPA,       "the window opens: timeslot start less lead time"),
    *(
        Row(source, target, CPA, because)
        for source in (PENDING, PENDING_SCHEDULING)
        for target, because in (
            (TERMINATED, "cancelled by a person, no claim exists"),
            (EXPIRED,    "the latest start passed, no claim exists"),
            (FAILED,     "it can never be placed, or the retries are used up"),
        )
    ),
    Row(PENDING_SCHEDULING, SCHEDULED,          SCHEDULER, "the worker has the claim"),

    Row(SCHEDULED,          INSTANTIATING,      LABLETS,   "the lab is due"),
    Row(SCHEDULED,          PENDING_SCHEDULING, LABLETS,   "the worker is lost, drained or refuses the lab"),
    Row(INSTANTIATING,      READY,              LABLETS,   "every node has booted"),
    Row(INSTANTIATING,      PENDING_SCHEDULING, LABLETS,   "the worker is lost, drained or refuses the lab"),
    Row(READY,              RUNNING,            LABLETS,   "the timeslot begins, or the lab is used"),
    Row(READY,              PENDING_SCHEDULING, LABLETS,   "the worker is lost", WORKER_LOST),
    Row(RUNNING,            COLLECTING,         LABLETS,   "it ends and the definition collects"),
    Row(RUNNING,            PENDING_SCHEDULING, LABLETS,   "the worker is lost", WORKER_LOST),
    Row(COLLECTING,         GRADING,            LABLETS,   "a grading service is configured"),
    *(
        Row(source, STOPPING, LABLETS, "it ends: `end_reason` says why")
        for source in (SCHEDULED, *OWNS_LAB)
    ),
    *(
        Row(STOPPING, target, CPA, f"the lab is gone, the claim released, end reason {reason}")
        for reason, target in ENDED_BY.items()
    ),
)
# fmt: on

_ROWS: Final = {(row.source, row.target): row for row in TRANSITIONS}


def find_transition(source: SessionStatus, target: SessionStatus) -> SessionTransition | None:
    """The row that leads from one status to the other, if there is one."""
    return _ROWS.get((source, target))


def is_allowed(source: SessionStatus, target: SessionStatus, *, is_worker_lost: bool = False) -> bool:
    """Whether the table has the row; some rows need a lost worker."""
    row = find_transition(source, target)
    return row is not None and (is_worker_lost or not row.only_if_worker_lost)


def allowed_targets(source: SessionStatus, *, is_worker_lost: bool = False) -> frozenset[SessionStatus]:
    """Every status that can follow."""
    return frozenset(
        status for status in SessionStatus if is_allowed(source, status, is_worker_lost=is_worker_lost)
    )
