"""The lifecycle of a worker as a table.

The control plane refuses every change that is not a row here; docs/reference/worker-states.md
is generated from it. A row marked `OBSERVED` may only be used to report what EC2 already did.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class WorkerStatus(StrEnum):
    """The status of a worker, as the controller last reported it."""

    PENDING = "pending"
    PROVISIONING = "provisioning"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "WorkerStatus | None":
        """Statuses are stored in lower case and read in any."""
        name = value.lower() if isinstance(value, str) else None
        return next((status for status in cls if status.value == name), None)


class DesiredStatus(StrEnum):
    """The status that people requested, or LCM on their behalf."""

    RUNNING = "running"
    STOPPED = "stopped"
    TERMINATED = "terminated"


PENDING: Final = WorkerStatus.PENDING
PROVISIONING: Final = WorkerStatus.PROVISIONING
STARTING: Final = WorkerStatus.STARTING
RUNNING: Final = WorkerStatus.RUNNING
DRAINING: Final = WorkerStatus.DRAINING
STOPPING: Final = WorkerStatus.STOPPING
STOPPED: Final = WorkerStatus.STOPPED
TERMINATING: Final = WorkerStatus.TERMINATING
TERMINATED: Final = WorkerStatus.TERMINATED
FAILED: Final = WorkerStatus.FAILED
UNKNOWN: Final = WorkerStatus.UNKNOWN

MEANING: Final = {
    PENDING: "The record exists; no instance is known yet.",
    PROVISIONING: "EC2 accepted the launch; the instance is not running yet.",
    STARTING: "The instance is starting, or runs without a known address.",
    RUNNING: "The instance runs and has an address, whether or not CML answers yet.",
    DRAINING: "No new sessions; stops when the present ones are over.",
    STOPPING: "A stop was decided; the instance is not stopped yet.",
    STOPPED: "The instance is stopped; its disk is kept, compute costs nothing.",
    TERMINATING: "Termination was decided; the instance is not terminated yet.",
    TERMINATED: "The instance is terminated. The record stays for the audit.",
    FAILED: "LCM gave up; the status reason says why. Retry tries again, Delete cleans up.",
    UNKNOWN: "EC2 reports a state that LCM does not know; LCM keeps observing.",
}

COLOR: Final = {
    PENDING: "orange",
    PROVISIONING: "orange",
    STARTING: "orange",
    RUNNING: "green",
    DRAINING: "blue",
    STOPPING: "fading",
    STOPPED: "grey",
    TERMINATING: "red",
    TERMINATED: "grey",
    FAILED: "red",
    UNKNOWN: "purple",
}
"""The color of a status in the dashboard; `fading` is grey with an orange dot."""


class Transition(NamedTuple):
    """One row: an allowed change, and its reason."""

    source: WorkerStatus
    target: WorkerStatus
    because: str
    observed: bool = False


OBSERVED: Final = True

# fmt: off
TRANSITIONS: Final = (
    #          from          to            because
    Transition(PENDING,      PROVISIONING, "EC2 accepted the launch"),
    Transition(PENDING,      FAILED,       "the launch cannot succeed, or took too long"),
    Transition(PENDING,      TERMINATED,   "desired status is terminated, nothing was launched"),

    Transition(PROVISIONING, STARTING,     "EC2 reports running"),
    Transition(PROVISIONING, PENDING,      "EC2 terminated the instance: launch a new one"),
    Transition(PROVISIONING, FAILED,       "the instance was terminated or took too long"),
    Transition(PROVISIONING, TERMINATING,  "desired status is terminated"),
    Transition(PROVISIONING, TERMINATED,   "desired status is terminated, the instance is gone"),

    Transition(STARTING,     RUNNING,      "EC2 reports running with an address"),
    Transition(STARTING,     FAILED,       "the instance did not start"),
    Transition(STARTING,     STOPPING,     "desired status is stopped"),
    Transition(STARTING,     TERMINATING,  "desired status is terminated"),
    Transition(STARTING,     TERMINATED,   "desired status is terminated, the instance is gone"),

    Transition(RUNNING,      DRAINING,     "a drain was requested, by scale-down or a person"),
    Transition(RUNNING,      STOPPING,     "desired status is stopped"),
    Transition(RUNNING,      TERMINATING,  "desired status is terminated"),
    Transition(RUNNING,      PENDING,      "the instance is missing: launch a new one"),
    Transition(RUNNING,      FAILED,       "the instance is missing and was replaced too often"),

    Transition(DRAINING,     STOPPING,     "drained, or the drain took too long"),
    Transition(DRAINING,     RUNNING,      "the drain was cancelled"),
    Transition(DRAINING,     TERMINATING,  "desired status is terminated"),

    Transition(STOPPING,     STOPPED,      "EC2 reports stopped"),
    Transition(STOPPING,     TERMINATING,  "desired status is terminated"),
    Transition(STOPPING,     TERMINATED,   "desired status is terminated, the instance is gone"),

    Transition(STOPPED,      STARTING,     "desired status is running"),
    Transition(STOPPED,      PENDING,      "desired status is running, there is no instance"),
    Transition(STOPPED,      TERMINATING,  "desired status is terminated"),
    Transition(STOPPED,      TERMINATED,   "desired status is terminated, the instance is gone"),

    Transition(TERMINATING,  TERMINATED,   "EC2 reports terminated"),

    Transition(FAILED,       PENDING,      "retry requested"),
    Transition(FAILED,       TERMINATING,  "desired status is terminated"),

    # Changes at EC2 outside LCM: only reported, never requested.
    Transition(PROVISIONING, STOPPING,     "drift: stopped outside LCM",          OBSERVED),
    Transition(PROVISIONING, STOPPED,      "drift: stopped outside LCM",          OBSERVED),
    Transition(STARTING,     STOPPED,      "drift: stopped outside LCM",          OBSERVED),
    Transition(RUNNING,      STARTING,     "drift: restarted outside LCM",        OBSERVED),
    Transition(RUNNING,      STOPPED,      "drift: stopped outside LCM",          OBSERVED),
    Transition(RUNNING,      TERMINATED,   "drift: terminated outside LCM",       OBSERVED),
    Transition(DRAINING,     STOPPED,      "drift: stopped outside LCM",          OBSERVED),
    Transition(DRAINING,     TERMINATED,   "drift: terminated outside LCM",       OBSERVED),
    Transition(STOPPED,      RUNNING,      "drift: started outside LCM",          OBSERVED),
    Transition(STOPPED,      STOPPING,     "drift: stopping again outside LCM",   OBSERVED),
    Transition(FAILED,       TERMINATED,   "drift: terminated outside LCM",       OBSERVED),
    *(
        Transition(source, UNKNOWN,        "EC2 reports a state LCM does not know", OBSERVED)
        for source in (PROVISIONING, STARTING, RUNNING, DRAINING, STOPPING, STOPPED, TERMINATING, FAILED)
    ),
    *(
        Transition(UNKNOWN, target,        "EC2 reports a known state again",             OBSERVED)
        for target in (PROVISIONING, STARTING, RUNNING, STOPPING, STOPPED, TERMINATING, TERMINATED)
    ),
)
# fmt: on

_ROWS: Final = {(row.source, row.target): row for row in TRANSITIONS}


EC2_STATES: Final = {
    "pending": PROVISIONING,
    "running": RUNNING,
    "stopping": STOPPING,
    "stopped": STOPPED,
    "shutting-down": TERMINATING,
    "terminated": TERMINATED,
}


def status_of_ec2_state(state: str) -> WorkerStatus:
    """The worker status that an EC2 instance state stands for."""
    return EC2_STATES.get(state, UNKNOWN)


def find_transition(source: WorkerStatus, target: WorkerStatus) -> Transition | None:
    """The row that leads from one status to the other, if there is one."""
    return _ROWS.get((source, target))


def is_allowed(source: WorkerStatus, target: WorkerStatus, *, observed: bool = False) -> bool:
    """Whether the table has the row; `observed` rows are for reports of what EC2 did."""
    row = find_transition(source, target)
    return row is not None and (observed or not row.observed)


def allowed_targets(source: WorkerStatus, *, observed: bool = False) -> frozenset[WorkerStatus]:
    """Every status that can follow."""
    return frozenset(r.target for r in TRANSITIONS if r.source is source and (observed or not r.observed))
