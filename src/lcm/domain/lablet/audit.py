"""What happens to definitions, sessions and labs, as the audit log of lablets calls it."""

from datetime import datetime
from enum import StrEnum

import msgspec


class LabletEvent(StrEnum):
    """The events of the lablet audit log."""

    PLACEMENT_ASSIGNED = "placement_assigned"
    PLACEMENT_WAITING = "placement_waiting"
    PLACEMENT_CONFLICT = "placement_conflict"
    PLACEMENT_RELEASED = "placement_released"
    CLAIM_LOST = "claim_lost"
    """The worker of a lab does not hold the claim of its session any more, and has no room to."""
    CLAIM_PUT_BACK = "claim_put_back"
    PLACEMENT_IMPOSSIBLE = "placement_impossible"
    WORKER_NOMINATED = "worker_nominated"
    TIMESLOT_OPENED = "timeslot_opened"
    TIMESLOT_MISSED = "timeslot_missed"
    TIMESLOT_EXTENDED = "timeslot_extended"
    SESSION_CREATED = "session_created"
    SESSION_ENDED = "session_ended"
    SESSION_FAILED = "session_failed"
    SESSION_REPLACED = "session_replaced"
    LAB_IMPORTED = "lab_imported"
    LAB_ADOPTED = "lab_adopted"
    """A lab was found again by its marker, or a person keeps it."""
    LAB_DISOWNED = "lab_disowned"
    LAB_DISCOVERY_REQUESTED = "lab_discovery_requested"
    LAB_ACTION_REQUESTED = "lab_action_requested"
    LAB_REMOVED = "lab_removed"
    LAB_LEAK_REPORTED = "lab_leak_reported"
    LAB_LEAKED_REMOVED = "lab_leaked_removed"
    LAB_DUPLICATE_REMOVED = "lab_duplicate_removed"
    LAB_LOST = "lab_lost"
    PORT_CONFLICT = "port_conflict"
    CLEANUP_STUCK = "cleanup_stuck"
    CLEANUP_ABANDONED = "cleanup_abandoned"
    DEFINITION_CREATED = "definition_created"
    DEFINITION_LOGIN_CHANGED = "definition_login_changed"
    DEFINITION_DEPRECATED = "definition_deprecated"
    DEFINITION_DELETED = "definition_deleted"


class LabletAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the lablet audit log."""

    id: str
    at: datetime
    event: LabletEvent
    by: str
    reason: str
    session_id: str | None = None
    definition_id: str | None = None
    worker_id: str | None = None
