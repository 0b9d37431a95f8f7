"""Templates define the instance of a worker; region configs define its network."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

MAX_NAME_LENGTH: Final = 63
NAME_PATTERN: Final = rf"^[a-z0-9]([a-z0-9-]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?$"
"""A host name's label: what workers, templates and regions are named by."""

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Reserved = Annotated[float, Meta(ge=0, le=1_000_000)]
HttpTokens = Literal["required", "optional"]
AmiOwner = Annotated[str, Meta(pattern=r"^(self|[0-9]{12})$")]

_PROFILE_NAME: Final = r"[A-Za-z0-9+=,.@_-]{1,128}"
_PROFILE_ARN: Final = r"arn:aws[a-z-]*:iam::[0-9]{12}:instance-profile/[A-Za-z0-9+=,.@_/-]+"
_KMS_KEY: Final = r"(mrk-)?[0-9a-f-]{32,36}|alias/[A-Za-z0-9/_-]+"
_KMS_ARN: Final = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:(key|alias)/[A-Za-z0-9/_-]+"

MAX_USER_DATA_BYTES: Final = 16_384
"""EC2's limit, before it is encoded."""


class WorkerTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of worker that people choose by name."""

    name: Name
    description: Annotated[str, Meta(max_length=500)]
    instance_type: Annotated[str, Meta(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
    cpu: Count
    memory_gb: Count
    disk_gb: Count
    max_nodes: Count
    reserved_cpu: Reserved = 0.0
    """What CML itself needs of the worker: sessions may not take it."""
    reserved_memory_gb: Reserved = 0.0
    reserved_storage_gb: Reserved = 0.0
    cpu_overcommit: Annotated[float, Meta(ge=1, le=16)] = 1.0
    """How many times over sessions may take its CPUs; memory is never shared."""
    usd_per_hour: Annotated[float, Meta(ge=0, le=10_000)]
    ami_name_pattern: Annotated[str, Meta(min_length=1, max_length=128)] = "CML-*"
    ami_owners: Annotated[tuple[AmiOwner, ...], Meta(min_length=1)] = ("self",)
    """The accounts whose AMIs are taken: `self`, or an account id for images that it shares."""
    ebs_encrypted: bool = True
    """Whether the root volume is encrypted even where image and account do not ask for it."""
    kms_key_id: Annotated[str, Meta(pattern=f"^({_KMS_KEY}|{_KMS_ARN})$")] | None = None
    """The key of the root volume; None: the account's default for EBS."""
    iam_instance_profile: Annotated[str, Meta(pattern=f"^({_PROFILE_NAME}|{_PROFILE_ARN})$")] | None = None
    """Name or ARN of the profile whose role the instance has."""
    user_data: Annotated[str, Meta(min_length=1)] | None = None
    """For cloud-init. No secret: every viewer can read it with the templates."""
    associate_public_ip: bool | None = None
    """Whether the instance gets a public address; None: as the subnet says."""
    metadata_http_tokens: HttpTokens = "required"
    """Whether instance metadata is given only to callers with a session token (IMDSv2)."""
    capacity_reservation: Annotated[str, Meta(pattern=r"^cr-[0-9a-f]{8,17}$")] | None = None
    """The capacity reservation that is used; without it EC2 takes an open one if it has one."""
    nested_virtualization: bool = False
    """Whether EC2 lets the instance run virtual machines: c8i, m8i, r8i and a few other types can."""
    allow_without_kvm: bool = False
    """Whether workers may be launched that cannot run CML's virtual machines."""
    enabled: bool = True
    default: bool = False
    """Whether the dashboard preselects it; at most one template, and one with KVM."""
    provisioning_timeout_minutes: Annotated[float, Meta(gt=0, le=1_440)] | None = None
    """How long a launch may take until the worker runs; None: as the fleet's setting says."""
    drain_timeout_hours: Annotated[float, Meta(gt=0, le=168)] | None = None
    """How long a drain waits for sessions; None: as long as the fleet's setting says."""

    @property
    def has_kvm(self) -> bool:
        """Whether CML can run its virtual machines: on bare metal, or by nested virtualization."""
        return self.nested_virtualization or is_metal(self.instance_type)


def is_metal(instance_type: str) -> bool:
    """Whether EC2 names it as bare metal, which has KVM by itself."""
    return instance_type.partition(".")[2].startswith("metal")


class RegionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network into which a region's workers are launched."""

    region: Name
    security_group_ids: Annotated[tuple[str, ...], Meta(min_length=1)]
    subnet_id: Annotated[str, Meta(min_length=1)]
    subnet_ids: tuple[str, ...] = ()
    """Further subnets, in order: used when EC2 has no capacity in the one before."""
    key_name: str | None = None
    default_tags: Mapping[str, str] = {}
    disk_usd_per_gb_month: Annotated[float, Meta(ge=0, le=100)] | None = None
    """What a gigabyte of gp3 costs a month; None: not known."""

    @property
    def subnets(self) -> tuple[str, ...]:
        """The subnets to try, in order."""
        return tuple(dict.fromkeys((self.subnet_id, *self.subnet_ids)))
