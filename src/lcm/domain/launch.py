"""The launch of an instance: every parameter of the request, decided once and stored.

The launch intent is stored before EC2 is called. Its client token is a pure function of worker and
generation, so any process at any time repeats the very same request (docs/adr/0003).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, NewType

import msgspec

from lcm.domain.template import RegionConfig, WorkerTemplate

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


def newest_image(images: Sequence[Ami]) -> Ami:
    """The AMI created last; of two created at once the one with the higher id, so that all callers agree."""
    return max(images, key=lambda image: (image.creation_date, image.id))


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Every parameter of one RunInstances call."""

    region: str
    image: Ami
    instance_type: str
    security_group_ids: tuple[str, ...]
    subnet_id: str
    key_name: str | None
    tags: dict[str, str]


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
    )


def other_subnets(region: RegionConfig, refused: str) -> list[str]:
    """The other subnets to try, starting after the refused one and wrapping around."""
    subnets = region.subnets
    if refused not in subnets:
        return list(subnets)
    position = subnets.index(refused)
    return [*subnets[position + 1 :], *subnets[:position]]
