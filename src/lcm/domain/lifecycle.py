"""The life of a worker as a table.

The control plane refuses every change that is not a row here; docs/reference/worker-states.md
is generated from it. A row marked `OBSERVED` may only be used to report what EC2 already did.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class WorkerStatus(StrEnum):
    """What is true of a worker, as the controller last reported it."""

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
    """What people ask for."""

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
    STARTING: "The instance is on its way to running, or runs without a known address.",
    RUNNING: "The instance runs and has an address. Whether CML answers is the flag `cml_ready`.",
    DRAINING: "No new sessions; stops when the present ones are over.",
    STOPPING: "A stop was decided; the instance is on its way down.",
    STOPPED: "The instance is stopped; its disk is kept, compute costs nothing.",
    TERMINATING: "Termination was decided; the instance is on its way out.",
    TERMINATED: "The instance is gone for good. The record stays for the audit.",
    FAILED: "LCM gave up and says why; `retry` tries again, `delete` cleans up.",
    UNKNOWN: "EC2 reports something LCM does not understand; it keeps looking.",
}


class Transition(NamedTuple):
    """One row: a change that may happen, and why it does."""

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
    Transition(PENDING,      TERMINATED,   "no longer wanted, and nothing was launched"),

    Transition(PROVISIONING, STARTING,     "EC2 reports running"),
    Transition(PROVISIONING, PENDING,      "EC2 gave the instance up: launch it anew"),
    Transition(PROVISIONING, FAILED,       "the instance died or took too long"),
    Transition(PROVISIONING, TERMINATING,  "no longer wanted"),
    Transition(PROVISIONING, TERMINATED,   "no longer wanted, and the instance is gone"),

    Transition(STARTING,     RUNNING,      "EC2 reports running with an address"),
    Transition(STARTING,     FAILED,       "the instance did not come up"),
    Transition(STARTING,     STOPPING,     "people want it stopped"),
    Transition(STARTING,     TERMINATING,  "no longer wanted"),
    Transition(STARTING,     TERMINATED,   "no longer wanted, and the instance is gone"),

    Transition(RUNNING,      DRAINING,     "scale-down or a person drains it"),
    Transition(RUNNING,      STOPPING,     "people want it stopped"),
    Transition(RUNNING,      TERMINATING,  "no longer wanted"),
    Transition(RUNNING,      PENDING,      "the instance is missing: launch it anew"),
    Transition(RUNNING,      FAILED,       "the instance is missing and was replaced too often"),

    Transition(DRAINING,     STOPPING,     "drained, or the drain took too long"),
    Transition(DRAINING,     RUNNING,      "the drain was cancelled"),
    Transition(DRAINING,     TERMINATING,  "no longer wanted"),

    Transition(STOPPING,     STOPPED,      "EC2 reports stopped"),
    Transition(STOPPING,     TERMINATING,  "no longer wanted"),
    Transition(STOPPING,     TERMINATED,   "no longer wanted, and the instance is gone"),

    Transition(STOPPED,      STARTING,     "people want it running"),
    Transition(STOPPED,      PENDING,      "people want it running and it has no instance"),
    Transition(STOPPED,      TERMINATING,  "no longer wanted"),
    Transition(STOPPED,      TERMINATED,   "no longer wanted, and the instance is gone"),

    Transition(TERMINATING,  TERMINATED,   "EC2 reports terminated"),

    Transition(FAILED,       PENDING,      "a person retries"),
    Transition(FAILED,       TERMINATING,  "no longer wanted"),

    # What EC2 did without us: only reported, never wished for.
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
        Transition(UNKNOWN, target,        "EC2 is understood again",             OBSERVED)
        for target in (PROVISIONING, STARTING, RUNNING, STOPPING, STOPPED, TERMINATING, TERMINATED)
    ),
)
# fmt: on

_ROWS: Final = {(row.source, row.target): row for row in TRANSITIONS}

FINAL: Final = frozenset({TERMINATED})
"""Nothing leads out of these."""

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
