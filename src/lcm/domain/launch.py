"""The launch of an instance: every parameter of the request, decided once and stored.

The launch intent is stored before EC2 is called. Its client token is a pure function of worker and
generation, so any process at any time repeats the very same request (docs/adr/0003).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, NewType

import msgspec

from lcm.domain.template import HttpTokens, RegionConfig, WorkerTemplate

WorkerId = NewType("WorkerId", str)
InstanceId = NewType("InstanceId", str)

MANAGED_BY_TAG = "lcm:managed_by"
MANAGED_BY = "lablet-cloud-manager"
DISCOVERY_TAG = "cml-managed"
WORKER_ID_TAG = "worker_id"
ENVIRONMENT_TAG = "cml-environment"
REGION_TAG = "cml-region"
OWNERSHIP_TAGS: Final = frozenset({WORKER_ID_TAG, MANAGED_BY_TAG, DISCOVERY_TAG})
"""Tags that prove who owns the instance; only LCM sets them, at the launch."""

MAX_UNATTENDED_LAUNCHES = 3
"""Launch generations without a request of a person: a broken AMI must not burn money all night."""


class Ami(msgspec.Struct, frozen=True, kw_only=True):
    """An AMI, as EC2 describes it."""

    id: str
    name: str
    description: str = ""
    creation_date: str = ""
    root_device: str = ""
    """The device name of its root volume."""
    disk_gb: int = 0
    """Of its root volume: an instance cannot have less."""


class InstanceTypeFacts(NamedTuple):
    """What EC2 says of an instance type."""

    is_bare_metal: bool
    can_nest: bool
    """It can run virtual machines if the launch asks for it."""


def kvm_mistake(template: WorkerTemplate, facts: InstanceTypeFacts) -> str:
    """Return why no instance may be launched from the template; empty if one may."""
    name = template.instance_type
    if template.nested_virtualization and not facts.can_nest:
        why = "bare metal needs none" if facts.is_bare_metal else "choose a type of c8i, m8i or r8i"
        return f"{name} has no nested virtualization: {why}"
    if template.nested_virtualization or facts.is_bare_metal or template.allow_without_kvm:
        return ""
    cure = "say nested_virtualization: true" if facts.can_nest else "choose bare metal, c8i, m8i or r8i"
    return f"{name} runs no virtual machines of CML: {cure}, or say allow_without_kvm: true"


def newest_image(images: Sequence[Ami]) -> Ami:
    """The AMI created last; of two created at once the one with the higher id, so that all callers agree."""
    return max(images, key=lambda image: (image.creation_date, image.id))


class RootVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The root volume of a new instance: gp3, and deleted with the instance."""

    device: str
    size_gb: int
    is_encrypted: bool
    kms_key_id: str | None = None


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Every parameter of one RunInstances call.

    The fields with a default came later. An intent of an earlier version lacks them, and its repetition
    must be the request that version sent: each default leaves its parameter out of the request.
    """

    region: str
    image: Ami
    instance_type: str
    security_group_ids: tuple[str, ...]
    subnet_id: str
    key_name: str | None
    tags: dict[str, str]
    root_volume: RootVolume | None = None
    iam_instance_profile: str | None = None
    user_data: str | None = None
    associate_public_ip: bool | None = None
    metadata_http_tokens: HttpTokens | None = None
    capacity_reservation: str | None = None
    nested_virtualization: bool = False


class LaunchIntent(msgspec.Struct, frozen=True, kw_only=True):
    """The write-ahead record of a launch: stored before EC2 is called, kept until it is resolved."""

    generation: int
    client_token: str
    spec: LaunchSpec
    requested_at: datetime


def client_token(worker_id: WorkerId, generation: int) -> str:
    """The idempotency token of one launch generation; EC2 accepts up to 64 characters."""
    digest = hashlib.sha256(f"lcm/{worker_id}/{generation}".encode()).hexdigest()
    return f"lcm-{digest[:48]}"


def instance_tags(
    *,
    worker_id: WorkerId,
    name: str,
    template_name: str,
    region: RegionConfig,
    overrides: Mapping[str, str],
    environment: str,
) -> dict[str, str]:
    """Region defaults first, worker overrides last; the tags that prove ownership cannot be overridden."""
    return {
        **region.default_tags,
        "Name": name,
        "template_name": template_name,
        ENVIRONMENT_TAG: environment,
        REGION_TAG: region.region,
        **overrides,
        WORKER_ID_TAG: worker_id,
        MANAGED_BY_TAG: MANAGED_BY,
        DISCOVERY_TAG: "true",
    }


class TagChanges(NamedTuple):
    """Changes to an instance's tags."""

    put: dict[str, str]
    remove: tuple[str, ...]


def tag_changes(
    current: Mapping[str, str],
    *,
    wanted: Mapping[str, str],
    retired: Collection[str],
    defaults: Mapping[str, str],
) -> TagChanges:
    """Compare tags; only those that people set on this worker are touched, now or before.

    A tag that was removed gets its default, or is deleted. All other tags of the instance, and the tags
    that prove ownership, are left as they are.
    """
    target = {
        key: wanted.get(key, defaults.get(key)) for key in (*wanted, *retired) if key not in OWNERSHIP_TAGS
    }
    put = {key: value for key, value in target.items() if value is not None and current.get(key) != value}
    return TagChanges(put, tuple(sorted(key for key in current if key in target and target[key] is None)))


def launch_spec(
    *,
    region: RegionConfig,
    template: WorkerTemplate,
    image: Ami,
    tags: dict[str, str],
    subnet_id: str | None = None,
) -> LaunchSpec:
    """The launch parameters of a template in a region."""
    return LaunchSpec(
        region=region.region,
        image=image,
        instance_type=template.instance_type,
        security_group_ids=region.security_group_ids,
        subnet_id=subnet_id or region.subnet_id,
        key_name=region.key_name,
        tags=tags,
        root_volume=RootVolume(
            device=image.root_device,
            size_gb=max(template.disk_gb, image.disk_gb),
            is_encrypted=template.ebs_encrypted,
            kms_key_id=template.kms_key_id,
        ),
        iam_instance_profile=template.iam_instance_profile,
        user_data=template.user_data,
        associate_public_ip=template.associate_public_ip,
        metadata_http_tokens=template.metadata_http_tokens,
        capacity_reservation=template.capacity_reservation,
        nested_virtualization=template.nested_virtualization,
    )


def other_subnets(region: RegionConfig, refused: str) -> list[str]:
    """The other subnets to try, starting after the refused one and wrapping around."""
    subnets = region.subnets
    if refused not in subnets:
        return list(subnets)
    position = subnets.index(refused)
    return [*subnets[position + 1 :], *subnets[:position]]
