"""The names of the event stream's events, and which of them a commit is."""

from enum import StrEnum
from operator import attrgetter

from lcm.control_plane.records.definitions import StoredDefinition
from lcm.domain.lablet.definition import DefinitionStatus
from lcm.domain.lablet.listed_lab import LabKind
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.domain.license import License, LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import DRAINING, STOPPING, TERMINATED
from lcm.domain.pause import Pause
from lcm.domain.readiness import CmlWait
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker


class WorkerEvent(StrEnum):
    """An event that carries a worker's whole record. The dashboard listens to every member."""

    CREATED = "worker.created"
    IMPORTED = "worker.imported"
    ADOPTED = "worker.adopted"
    STATUS_UPDATED = "worker.status.updated"
    ENDPOINT_UPDATED = "worker.endpoint.updated"
    EC2_DETAILS_UPDATED = "worker.ec2_details.updated"
    DRAIN_TIMED_OUT = "worker.drain.timed_out"
    CML_NOT_READY = "worker.cml.not_ready"
    TERMINATED = "worker.terminated"
    CONFIGS_EXTRACTED = "worker.configs.extracted"
    PAUSED = "worker.paused"
    RESUMED = "worker.resumed"
    IDLE_DETECTION_TOGGLED = "worker.idle_detection.toggled"
    LICENSE_UPDATED = "worker.license.updated"
    LICENSE_REGISTRATION_STARTED = "worker.license.registration.started"
    LICENSE_REGISTRATION_COMPLETED = "worker.license.registration.completed"
    LICENSE_REGISTRATION_FAILED = "worker.license.registration.failed"
    LICENSE_DEREGISTERED = "worker.license.deregistered"
    ACTIVITY_UPDATED = "worker.activity.updated"
    LABS_UPDATED = "worker.labs.updated"


class SessionEvent(StrEnum):
    """An event that carries a lablet session's whole record."""

    CREATED = "lablet.session.created"
    STATUS_UPDATED = "lablet.session.status.updated"
    WAITING_UPDATED = "lablet.session.waiting.updated"
    PROGRESS_UPDATED = "lablet.session.progress.updated"
    TIMESLOT_UPDATED = "lablet.session.timeslot.updated"
    ENDING_SOON = "lablet.session.ending_soon"
    ENDED = "lablet.session.ended"


class DefinitionEvent(StrEnum):
    """An event that carries a lablet definition without its topology."""

    CREATED = "lablet.definition.created"
    UPDATED = "lablet.definition.updated"
    DEPRECATED = "lablet.definition.deprecated"
    DELETED = "lablet.definition.deleted"


class StreamEvent(StrEnum):
    """An event of the stream that does not carry the record of one changed worker."""

    CONNECTED = "connected"
    RESET = "reset"
    HEARTBEAT = "heartbeat"
    SESSION_EXPIRED = "auth.session.expired"
    SHUTDOWN = "system.sse.shutdown"
    WORKER_SNAPSHOT = "worker.snapshot"
    SESSIONS_SNAPSHOT = "lablet.sessions.snapshot"
    BATCH_UPDATED = "lablet.batch.updated"
    QUEUE_UPDATED = "scheduling.queue.updated"
    METRICS_UPDATED = "worker.metrics.updated"
    WS_CONNECTED = "worker.ws.connected"
    WS_DISCONNECTED = "worker.ws.disconnected"
    LAB_STATE_CHANGE = "worker.lab.state_change"
    LAB_STATS_UPDATED = "worker.lab.stats_updated"
    LAB_STATUS_UPDATED = "lab.status.updated"
    LAB_DISCOVERED = "lab.discovered"
    LAB_LEAKED = "lab.leaked"
    LAB_REMOVED = "lab.removed"


def lab_event_of(before: LabRecord | None, after: LabRecord | None) -> StreamEvent | None:
    """Return the event name; None for a commit that does not change whose lab is where."""
    if after is None:
        return StreamEvent.LAB_REMOVED if before is not None else None
    if after.kind is LabKind.LEAKED and (before is None or before.kind is not LabKind.LEAKED):
        return StreamEvent.LAB_LEAKED
    is_first = after.kind is not None and (before is None or before.kind is None)
    return StreamEvent.LAB_DISCOVERED if is_first else None


def session_event_of(before: LabletSession | None, after: LabletSession) -> SessionEvent | None:
    """Return the event name; None for a commit that shows people nothing new."""
    if before is None:
        return SessionEvent.CREATED
    if after.is_ended:
        return SessionEvent.ENDED
    if (before.status, before.desired_status) != (after.status, after.desired_status):
        return SessionEvent.STATUS_UPDATED
    if before.timeslot != after.timeslot:
        return SessionEvent.TIMESLOT_UPDATED
    if before.end_warning != after.end_warning:
        return SessionEvent.ENDING_SOON
    if (before.waits_for, before.nominated) != (after.waits_for, after.nominated):
        return SessionEvent.WAITING_UPDATED
    if _progress(before) != _progress(after):
        return SessionEvent.PROGRESS_UPDATED
    return None


def has_changed_queue(before: LabletSession | None, after: LabletSession) -> bool:
    """Return whether the commit changed who waits for a worker, or for what."""
    return (before and _wait_of(before)) != _wait_of(after)


def definition_event_of(before: StoredDefinition | None, after: StoredDefinition) -> DefinitionEvent | None:
    """Return the event name; None for a commit that shows people nothing new."""
    if before is None:
        return DefinitionEvent.UPDATED if after.replaces else DefinitionEvent.CREATED
    if before.definition == after.definition:
        has_login_changed = (before.access_ref is None) != (after.access_ref is None)
        return DefinitionEvent.UPDATED if has_login_changed else None
    if after.definition.status is DefinitionStatus.ARCHIVED:
        return DefinitionEvent.DELETED
    return DefinitionEvent.DEPRECATED


_progress = attrgetter("lab", "steps", "nodes", "cleanup")


def _wait_of(session: LabletSession) -> object:
    """Return what the queue shows of a session; None if it does not wait for a worker."""
    if session.status is not PENDING_SCHEDULING:
        return None
    return session.desired_status, session.waits_for or True, session.nominated


def event_of(before: Worker | None, after: Worker) -> WorkerEvent:
    """Return the event name; of several changes in one commit, the one that matters most to users."""
    if before is None:
        return WorkerEvent.IMPORTED if after.imported else WorkerEvent.CREATED
    if (notable := _notable_event(before, after)) is not None:
        return notable
    if (paused := _pause_event(before.pause, after.pause)) is not None:
        return paused
    if before.status is not after.status:
        return WorkerEvent.TERMINATED if after.status is TERMINATED else WorkerEvent.STATUS_UPDATED
    if before.is_idle_detection_enabled is not after.is_idle_detection_enabled:
        return WorkerEvent.IDLE_DETECTION_TOGGLED
    if before.license != after.license:
        return _license_event(before.license, after.license)
    if (before.instance.public_ip, before.instance.private_ip) != (
        after.instance.public_ip,
        after.instance.private_ip,
    ):
        return WorkerEvent.ENDPOINT_UPDATED
    if _ec2_details(before.instance) != _ec2_details(after.instance):
        return WorkerEvent.EC2_DETAILS_UPDATED
    if before.activity.checked_at != after.activity.checked_at:
        return WorkerEvent.ACTIVITY_UPDATED
    if _labs(before.cml) != _labs(after.cml):
        return WorkerEvent.LABS_UPDATED
    return WorkerEvent.STATUS_UPDATED


def _notable_event(before: Worker, after: Worker) -> WorkerEvent | None:
    """Return the event of a time that was exceeded, or of trust that was given: either matters most."""
    if after.is_trusted and not before.is_trusted:
        return WorkerEvent.ADOPTED
    if _drain_timed_out(before, after):
        return WorkerEvent.DRAIN_TIMED_OUT
    return WorkerEvent.CML_NOT_READY if _became_overdue(before.cml.wait, after.cml.wait) else None


def _drain_timed_out(before: Worker, after: Worker) -> bool:
    """Return whether the drain ended at its deadline with sessions left."""
    is_stopped = before.status is DRAINING and after.status is STOPPING and bool(before.sessions)
    deadline = before.pause.until
    return is_stopped and deadline is not None and after.status_since >= deadline


def _became_overdue(before: CmlWait | None, after: CmlWait | None) -> bool:
    """Return whether CML has just exceeded the time in which it should become ready."""
    was_overdue = before is not None and before.alarmed_at is not None
    return after is not None and after.alarmed_at is not None and not was_overdue


def _pause_event(before: Pause, after: Pause) -> WorkerEvent | None:
    was_under_way = before.extraction is not None and before.extraction.ended_at is None
    if was_under_way and after.extraction is not None and after.extraction.ended_at is not None:
        return WorkerEvent.CONFIGS_EXTRACTED
    if before.last_paused_at != after.last_paused_at:
        return WorkerEvent.PAUSED
    return WorkerEvent.RESUMED if before.last_resumed_at != after.last_resumed_at else None


_labs = attrgetter("labs_count", "lab_discovery_requested_at", "labs")

_ec2_details = attrgetter("id", "type", "ami_id", "ami_name", "ami_description", "ami_creation_date")


def _license_event(before: License, after: License) -> WorkerEvent:
    if after.operation_in_progress and not before.operation_in_progress:
        is_registration = after.pending_operation is LicenseOperation.REGISTER
        started = WorkerEvent.LICENSE_REGISTRATION_STARTED
        return started if is_registration else WorkerEvent.LICENSE_UPDATED
    if after.status is LicenseStatus.REGISTERED and before.status is not after.status:
        return WorkerEvent.LICENSE_REGISTRATION_COMPLETED
    if after.status is LicenseStatus.DEREGISTERED and before.status is not after.status:
        return WorkerEvent.LICENSE_DEREGISTERED
    if after.last_error and before.operation_in_progress:
        failed = before.pending_operation is LicenseOperation.REGISTER
        return WorkerEvent.LICENSE_REGISTRATION_FAILED if failed else WorkerEvent.LICENSE_UPDATED
    return WorkerEvent.LICENSE_UPDATED
