"""Status changes of a worker, with its launches and instances."""

from datetime import datetime

from msgspec.structs import replace

from lcm.domain import pause
from lcm.domain.cost import book
from lcm.domain.errors import Conflict, IllegalTransition
from lcm.domain.lablet.listed_lab import LabSummary
from lcm.domain.launch import (
    MAX_UNATTENDED_LAUNCHES,
    Ami,
    LaunchIntent,
    LaunchSpec,
    client_token,
)
from lcm.domain.license import lose_instance
from lcm.domain.lifecycle import (
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STOPPED,
    STOPPING,
    TERMINATED,
    TERMINATING,
    UNKNOWN,
    DesiredStatus,
    WorkerStatus,
    allowed_targets,
    is_allowed,
)
from lcm.domain.observed import record_connection
from lcm.domain.pause import Pause
from lcm.domain.telemetry import MonitorState
from lcm.domain.worker import Instance, Launches, Worker, WorkerInstance, extend_history


def move(
    worker: Worker, target: WorkerStatus, *, by: str, reason: str, now: datetime, observed: bool = False
) -> Worker:
    """Change a worker's status, if the table has the row; the same status only gets the new reason.

    An observed change without a row becomes UNKNOWN: a surprise at EC2 never blocks the loop.
    """
    if target is worker.status:
        return replace(worker, status_reason=reason, updated_at=now)
    if not is_allowed(worker.status, target, observed=observed):
        if not observed or worker.status in (TERMINATED, PENDING):
            raise IllegalTransition(worker.status, target, allowed_targets(worker.status, observed=observed))
        reason = f"unexpected: EC2 changed from {worker.status} to {target}"
        if worker.status is UNKNOWN:
            return replace(worker, status_reason=reason, updated_at=now)
        target = UNKNOWN
    moved = replace(
        worker,
        status=target,
        status_reason=reason,
        updated_at=now,
        state_history=extend_history(worker, target, by=by, reason=reason, now=now),
        use=book(worker.use, worker.stretch_until(now)),
    )
    is_outside = observed and worker.desired_status is DesiredStatus.RUNNING
    moved = replace(moved, pause=_pause_after(worker, moved, is_outside=is_outside, by=by, now=now))
    return _settle_fields(worker, moved, now)


def _pause_after(before: Worker, after: Worker, *, is_outside: bool, by: str, now: datetime) -> Pause:
    """The pause that the new status implies."""
    current = after.pause
    if after.status is RUNNING:
        return pause.resume(current, now=now) if after.desired_status is DesiredStatus.RUNNING else current
    is_newly_stopped = after.status in (STOPPING, STOPPED) and before.status not in (STOPPING, STOPPED)
    if is_newly_stopped and is_outside:
        return pause.stop_outside(current, by=by, now=now)
    if is_newly_stopped:
        current = pause.carry_out(current, now=now)
    return replace(pause.withdraw_decision(current, now=now), due_at=None)


def _settle_fields(before: Worker, after: Worker, now: datetime) -> Worker:
    """Set the fields that the new status implies."""
    if not after.is_live:
        after = replace(after, cml=replace(after.cml, is_ready=False, wait=None, labs_count=None))
        if after.connection.status is not None:
            after = record_connection(
                after, MonitorState.DISCONNECTED, reason=f"worker is {after.status}", at=now
            )
    if after.status in (RUNNING, STOPPED, FAILED, TERMINATING, TERMINATED):
        after = replace(after, pending_since=None)
    if after.status is STOPPED:
        # A lab survives on the disk; a session without one is placed elsewhere.
        owning = tuple(claim for claim in after.claims if claim.lab_generation)
        after = replace(after, instance=replace(after.instance, public_ip=None), claims=owning)
    if after.status in (TERMINATED, PENDING):
        after = replace(after, claims=(), nominations={}, freed_ports={})
    if after.status is TERMINATED:
        after = replace(
            after,
            desired_status=DesiredStatus.TERMINATED,
            cml=replace(after.cml, license=None),
            license=lose_instance(after.license, is_final=True, now=now),
            instance=replace(after.instance, public_ip=None, private_ip=None),
            pause=pause.abandon(after.pause, now=now),
        )
    if after.status is PENDING and before.status is not FAILED:
        # The old instance is proven gone: the next launch creates a new one.
        after = replace(
            _without_instance(after),
            # The replacement of an instance that never ran uses the timeout of the first.
            pending_since=before.pending_since if before.status is PROVISIONING else now,
            launch=replace(after.launch, intent=None),
            license=lose_instance(after.license, is_final=False, now=now),
        )
    return after


def _without_instance(worker: Worker) -> Worker:
    """The worker without its instance and what only that one had; the facts of its AMI stay."""
    return replace(
        worker,
        instance=replace(worker.instance, id=None, public_ip=None, private_ip=None),
        cml=replace(
            worker.cml,
            certificate_sha256=None,
            refused_certificate_sha256=None,
            license=None,
            labs=LabSummary(),
            definitions=None,
        ),
    )


def with_launch_intent(worker: Worker, spec: LaunchSpec, *, now: datetime) -> Worker:
    """Record the intent to launch, under a new generation and client token."""
    if worker.status is not PENDING:
        raise IllegalTransition(worker.status, "a new launch", allowed_targets(worker.status))
    if worker.imported:
        raise Conflict("imported workers are never launched by LCM; create a worker instead")
    if worker.has_unresolved_launch:
        raise Conflict("an earlier launch of this worker is unresolved; repeat that one")
    if worker.instance.id is not None:
        raise Conflict(f"instance {worker.instance.id} is not proven gone; withdraw its intent first")
    unattended = worker.launch.unattended
    if unattended >= MAX_UNATTENDED_LAUNCHES:
        raise Conflict(f"{unattended} launches without a request of a person; retry to launch again")
    generation = worker.launch.generation + 1
    token = client_token(worker.id, generation)
    intent = LaunchIntent(generation=generation, client_token=token, spec=spec, requested_at=now)
    return replace(
        _without_instance(worker),
        launch=Launches(generation=generation, unattended=unattended + 1, intent=intent),
        updated_at=now,
    )


def without_launch_intent(worker: Worker, *, reason: str, now: datetime, refused: bool = False) -> Worker:
    """Withdraw an intent whose instance is proven gone, so that a new generation may follow.

    A launch that EC2 `refused` created no instance, so it does not count as an unattended launch.
    """
    launch = worker.launch
    unattended = max(0, launch.unattended - 1) if refused and launch.intent else launch.unattended
    return replace(
        _without_instance(worker),
        launch=replace(launch, unattended=unattended, intent=None),
        license=lose_instance(worker.license, is_final=False, now=now),
        status_reason=reason,
        updated_at=now,
    )


def attach_instance(worker: Worker, instance: Instance, *, now: datetime) -> Worker:
    """Record the worker's instance and its addresses."""
    attached = replace(
        worker.instance,
        id=instance.id,
        type=instance.instance_type,
        ami_id=instance.image_id,
        public_ip=instance.public_ip,
        private_ip=instance.private_ip,
    )
    image = worker.launch.intent.spec.image if worker.launch.intent else None
    if image is not None and image.id == instance.image_id:
        attached = with_image(attached, image)
    return replace(worker, instance=attached, updated_at=now)


def with_image(instance: WorkerInstance, image: Ami) -> WorkerInstance:
    """The instance with what is known of its AMI."""
    return replace(
        instance,
        ami_name=image.name,
        ami_description=image.description,
        ami_creation_date=image.creation_date,
    )
