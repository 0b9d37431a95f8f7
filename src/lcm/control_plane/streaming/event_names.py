"""The event name of a commit of a worker."""

from operator import attrgetter

from lcm.domain.license import License, LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import DRAINING, STOPPING, TERMINATED
from lcm.domain.worker import Worker


def event_of(before: Worker | None, after: Worker) -> str:
    """Return the event name; of several changes in one commit, the one that matters most to users."""
    if before is None:
        return "worker.imported" if after.imported else "worker.created"
    if _drain_timed_out(before, after):
        return "worker.drain.timed_out"
    if before.last_paused_at != after.last_paused_at:
        return "worker.paused"
    if before.last_resumed_at != after.last_resumed_at:
        return "worker.resumed"
    if before.status is not after.status:
        return "worker.terminated" if after.status is TERMINATED else "worker.status.updated"
    if before.is_idle_detection_enabled is not after.is_idle_detection_enabled:
        return "worker.idle_detection.toggled"
    if before.license != after.license:
        return _license_event(before.license, after.license)
    if (before.public_ip, before.private_ip) != (after.public_ip, after.private_ip):
        return "worker.endpoint.updated"
    if _ec2_details(before) != _ec2_details(after):
        return "worker.ec2_details.updated"
    if before.last_activity_check_at != after.last_activity_check_at:
        return "worker.activity.updated"
    if (before.labs_count, before.lab_discovery_requested_at) != (
        after.labs_count,
        after.lab_discovery_requested_at,
    ):
        return "worker.labs.updated"
    return "worker.status.updated"


def _drain_timed_out(before: Worker, after: Worker) -> bool:
    """Return whether the drain ended at its deadline with sessions left."""
    is_stopped = before.status is DRAINING and after.status is STOPPING and bool(before.sessions)
    deadline = before.drain_deadline_at
    return is_stopped and deadline is not None and after.status_since >= deadline


_ec2_details = attrgetter(
    "ec2_instance_id", "instance_type", "ami_id", "ami_name", "ami_description", "ami_creation_date"
)


def _license_event(before: License, after: License) -> str:
    if after.operation_in_progress and not before.operation_in_progress:
        is_registration = after.pending_operation is LicenseOperation.REGISTER
        return "worker.license.registration.started" if is_registration else "worker.license.updated"
    if after.status is LicenseStatus.REGISTERED and before.status is not after.status:
        return "worker.license.registration.completed"
    if after.status is LicenseStatus.DEREGISTERED and before.status is not after.status:
        return "worker.license.deregistered"
    if after.last_error and before.operation_in_progress:
        failed = before.pending_operation is LicenseOperation.REGISTER
        return "worker.license.registration.failed" if failed else "worker.license.updated"
    return "worker.license.updated"
