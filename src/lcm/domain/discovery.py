"""Which EC2 instances that LCM did not launch become workers, and how such a worker is recorded.

Pure decisions: the worker controller finds the instances, the control plane creates the records.
"""

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from lcm.domain.capacity import declared_by
from lcm.domain.lablet.claim import Reserve, reserved_by
from lcm.domain.launch import (
    DISCOVERY_TAG,
    ENVIRONMENT_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    REGION_TAG,
    WORKER_ID_TAG,
    Ami,
    WorkerId,
)
from lcm.domain.lifecycle import DesiredStatus, status_of_ec2_state
from lcm.domain.template import WorkerTemplate
from lcm.domain.transitions import attach_instance, with_image
from lcm.domain.worker import Cml, HistoryEntry, Instance, Worker, new_worker

NO_TEMPLATE: Final = "imported"
"""The template name of an imported worker whose instance type no template has."""

KEPT_TAGS: Final = (ENVIRONMENT_TAG, REGION_TAG)
"""Tags of a found instance that say where it belongs: they become tags of its worker."""

LONGEST_NAME: Final = 63


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that people change at run time; null leaves a field to the controller's environment."""

    enabled: bool | None = None
    regions: tuple[str, ...] | None = None
    tag_filter: dict[str, str] | None = None
    """Tags that an instance must have, all of them; default `cml-managed=true`."""
    ami_filter: str | None = None
    """Pattern of the AMI name, with `*` and `?`; empty: any."""


class FoundInstance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An instance that may become a worker, with what was observed of it."""

    instance: Instance
    image: Ami | None = None
    cml_version: str | None = None
    cml_ready: bool = False
    cml_certificate_sha256: str | None = None


@dataclass(frozen=True)
class DiscoveryPlan:
    """Which regions to scan, and which instances to import."""

    enabled: bool
    regions: tuple[str, ...]
    tags: Mapping[str, str]
    ami_filter: str


def plan_discovery(
    stored: DiscoverySettings,
    *,
    enabled: bool,
    regions: tuple[str, ...],
    default_region: str,
    tag_filter: str | None,
    ami_filter: str,
) -> DiscoveryPlan:
    """Merge the stored settings over the environment; discovery runs only if neither disables it."""
    tags = stored.tag_filter or parse_tag_filter(tag_filter or "")
    return DiscoveryPlan(
        enabled=enabled and stored.enabled is not False,
        regions=stored.regions or regions or (default_region,),
        tags=tags or {DISCOVERY_TAG: "true"},
        ami_filter=ami_filter if stored.ami_filter is None else stored.ami_filter,
    )


def parse_tag_filter(text: str) -> dict[str, str]:
    """Parse `key=value` pairs separated by commas. Raises ValueError for anything else."""
    tags = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not key.strip() or not equals:
            raise ValueError(f"{pair!r} is not of the form key=value")
        tags[key.strip()] = value.strip()
    return tags


def matches_ami_filter(image: Ami | None, pattern: str) -> bool:
    """Whether an AMI's name matches; an AMI that cannot be read matches only the empty pattern."""
    if not pattern:
        return True
    return image is not None and fnmatch.fnmatchcase(image.name, pattern.replace("[", "[[]"))


@dataclass(frozen=True)
class KnownWorkers:
    """Worker ids and their instances according to the records, terminated workers included."""

    instance_ids: frozenset[str]
    worker_ids: frozenset[str]

    @staticmethod
    def of(workers: Iterable[Worker]) -> "KnownWorkers":
        every = list(workers)
        return KnownWorkers(
            frozenset(w.instance.id for w in every if w.instance.id is not None),
            frozenset(w.id for w in every),
        )


def reason_not_to_import(instance: Instance, known: KnownWorkers, environment: str) -> str | None:
    """None if it is new. An instance that LCM launched belongs to its worker, whatever the record says."""
    if instance.is_gone:
        return f"it is {instance.state}"
    if instance.id in known.instance_ids:
        return "a worker has this instance already"
    if instance.tags.get(MANAGED_BY_TAG) != MANAGED_BY:
        return None
    owner = instance.tags.get(WORKER_ID_TAG, "")
    if owner in known.worker_ids:
        return f"LCM launched it for worker {owner}"
    fleet = instance.tags.get(ENVIRONMENT_TAG, environment)
    return None if fleet == environment else f"it belongs to the fleet {fleet!r}"


def imported_worker(
    found: FoundInstance,
    *,
    worker_id: WorkerId,
    taken_names: Collection[str],
    templates: Sequence[WorkerTemplate],
    by: str,
    now: datetime,
) -> Worker:
    """Record an instance as it is: the desired status is its present one, so that nothing is done to it."""
    instance = found.instance
    is_stopped = instance.state in {"stopped", "stopping"}
    reason = f"imported: found in {instance.region} as {instance.id}"
    status = status_of_ec2_state(instance.state)
    worker = new_worker(
        worker_id=worker_id,
        name=worker_name(instance, taken_names),
        template_name=_template_of(instance, templates),
        aws_region=instance.region,
        tags={key: instance.tags[key] for key in KEPT_TAGS if key in instance.tags},
        by=by,
        now=now,
    )
    known = next((template for template in templates if template.name == worker.template_name), None)
    worker = replace(
        attach_instance(worker, instance, now=now),
        imported=True,
        declared_capacity=declared_by(known) if known else None,
        reserve=reserved_by(known) if known else Reserve(),
        status=status,
        status_reason=reason,
        desired_status=DesiredStatus.STOPPED if is_stopped else DesiredStatus.RUNNING,
        pending_since=None,
        cml=Cml(
            version=found.cml_version,
            is_ready=found.cml_ready and instance.state == "running",
            certificate_sha256=found.cml_certificate_sha256,
        ),
        state_history=(HistoryEntry(source=None, target=status, by=by, reason=reason, at=now),),
    )
    if found.image is None:
        return worker
    return replace(worker, instance=with_image(worker.instance, found.image))


def worker_name(instance: Instance, taken: Collection[str]) -> str:
    """Its `Name` tag as a host name, or its id; with the end of its id if another worker has that name."""
    name_tag = re.sub(r"[^a-z0-9]+", "-", instance.tags.get("Name", "").lower()).strip("-")
    name = name_tag[:LONGEST_NAME].rstrip("-") or instance.id
    if name not in taken:
        return name
    suffix = instance.id.removeprefix("i-")[-8:]
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{suffix}"


def _template_of(instance: Instance, templates: Iterable[WorkerTemplate]) -> str:
    fitting = sorted(t.name for t in templates if t.instance_type == instance.instance_type)
    return fitting[0] if fitting else NO_TEMPLATE
