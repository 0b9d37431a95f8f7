"""Which EC2 instances that LCM did not launch become workers, and how such a worker is recorded.

Pure decisions: the worker controller finds the instances, the control plane creates the records.
"""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Final, Self

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
from lcm.domain.worker import Cml, Discovered, HistoryEntry, Instance, Worker, new_worker

NO_TEMPLATE: Final = "imported"
"""The template name of an imported worker whose instance type no template has."""

KEPT_TAGS: Final = (ENVIRONMENT_TAG, REGION_TAG)
"""Tags of a found instance that say where it belongs: they become tags of its worker."""

LONGEST_NAME: Final = 63


class ImportTrust(StrEnum):
    """Which found instances get LCM's credentials without being adopted (AUTO_IMPORT_TRUST)."""

    ADOPT = "adopt"
    """None: an admin adopts each."""
    TAG = "tag"
    """Those that have the tags and are on the allow-list."""


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
    is_allowed: bool = False
    """It is on the allow-list: it need not be adopted."""


@dataclass(frozen=True)
class AllowList:
    """What an instance must have to be trusted: of each kind that is named, one of the values."""

    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `kind=value` pairs separated by commas. Raises ValueError for anything else."""
        wanted: defaultdict[str, set[str]] = defaultdict(set)
        for kind, value in _pairs(text):
            if kind not in _ALLOWED_BY:
                raise ValueError(f"{kind!r} is none of {', '.join(_ALLOWED_BY)}")
            wanted[kind].add(value)
        return cls({kind: frozenset(values) for kind, values in wanted.items()})

    def allows(self, instance: Instance) -> bool:
        """An empty list allows nothing."""
        return bool(self.wanted) and all(
            _ALLOWED_BY[kind](instance) in values for kind, values in self.wanted.items()
        )


_ALLOWED_BY: Final[Mapping[str, Callable[[Instance], str | None]]] = {
    "owner": attrgetter("owner_id"),
    "vpc": attrgetter("vpc_id"),
    "subnet": attrgetter("subnet_id"),
    "ami": attrgetter("image_id"),
}


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
    return dict(_pairs(text))


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not key.strip() or not equals:
            raise ValueError(f"{pair!r} is not of the form key=value")
        pairs.append((key.strip(), value.strip()))
    return pairs


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
    if not found.is_allowed:
        reason += "; its CML gets no login before an admin adopts it"
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
        discovered=Discovered(
            owner_id=instance.owner_id,
            vpc_id=instance.vpc_id,
            subnet_id=instance.subnet_id,
            adopted_at=now if found.is_allowed else None,
            adopted_by=by if found.is_allowed else None,
        ),
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
