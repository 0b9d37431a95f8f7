"""How many workers a region has, and how many it may gain."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.reservations import Reserved
from lcm.domain.lablet.admission import is_licensing
from lcm.domain.lablet.snapshot import Growth
from lcm.domain.license import LicenseStatus
from lcm.domain.lifecycle import FAILED, RUNNING, TERMINATED, TERMINATING
from lcm.domain.scaling import AuditEntry, AuditEvent, ScalingPolicy, scale_up_refusal
from lcm.domain.worker import Worker

COOLDOWN: Final = "a worker was added to the region a moment ago"
_INACTIVE = (FAILED, TERMINATING, TERMINATED)


async def growth(
    records: Records, policies: Policies, workers: Sequence[Worker], *, has_fleet_token: bool
) -> dict[str, Growth]:
    """Return how many of such workers each region may gain now, and when it may again."""
    now = records.clock.now()
    accepted = await _accepted(records, policies.scaling, now)
    found = {}
    for region in policies.regions:
        active, last_at = _count(workers, accepted, region, {})
        unlicensed = _unlicensed(workers, region, has_fleet_token=has_fleet_token)
        found[region] = _growth(policies.scaling, active, last_at, unlicensed, now)
    return found


def _growth(
    policy: ScalingPolicy, active: int, last_at: datetime | None, unlicensed: Worker | None, now: datetime
) -> Growth:
    most = policy.max_workers_per_region
    if unlicensed is not None:
        return Growth(
            count=0,
            max_workers=most,
            refusal=f"worker {unlicensed.name} has no license and a new one would get none; register that"
            " worker, or store a license token with PUT /api/settings/license",
        )
    left = max(0, most - active)
    refusal = scale_up_refusal(policy, active_workers=active, last_scale_up_at=last_at, now=now)
    if refusal is None:
        return Growth(count=left, max_workers=most)
    if left and last_at is not None:
        # Without the seconds that are left: the same state has to be the same snapshot.
        retry_at = last_at + policy.scale_up_cooldown
        return Growth(count=0, max_workers=most, refusal=COOLDOWN, retry_at=retry_at)
    return Growth(count=0, max_workers=most, refusal=refusal)


def _unlicensed(workers: Iterable[Worker], region: str, *, has_fleet_token: bool) -> Worker | None:
    """Return a worker that runs without a license while nothing would license a new one.

    Sessions do not run on such a worker, nor on another like it: one that was bought in vain is enough.
    """
    for worker in workers:
        health = worker.cml.health
        is_up = worker.aws_region == region and worker.status is RUNNING and worker.cml.is_ready
        if is_up and health is not None and health.is_licensed is False:
            has_failed = worker.license.declared and worker.license.status is LicenseStatus.FAILED
            if has_failed or not (has_fleet_token or is_licensing(worker)):
                return worker
    return None


async def count_workers(
    records: Records, policy: ScalingPolicy, region: str, reserved: Reserved
) -> tuple[int, datetime | None]:
    """Return how many workers the region has or is about to have, and when the last was added of late."""
    workers = await records.workers.list_live()
    accepted = await _accepted(records, policy, records.clock.now())
    return _count(workers, accepted, region, reserved)


async def _accepted(records: Records, policy: ScalingPolicy, now: datetime) -> list[AuditEntry]:
    """Return the scale-ups for which the cooldown may not be over; older ones decide nothing."""
    entries = await records.audit.since(now - policy.scale_up_cooldown)
    return [entry for entry in entries if entry.event is AuditEvent.SCALE_UP_ACCEPTED]


def _count(
    workers: Iterable[Worker], accepted: Iterable[AuditEntry], region: str, reserved: Reserved
) -> tuple[int, datetime | None]:
    active = {
        worker.name for worker in workers if worker.aws_region == region and worker.status not in _INACTIVE
    }
    moments = [*reserved.values(), *(entry.at for entry in accepted if entry.aws_region == region)]
    return len(active | reserved.keys()), max(moments, default=None)
