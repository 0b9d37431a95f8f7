"""The instances as the AWS process reports them to the CML process (`GET /_lcm/instances`)."""

import msgspec


class ListedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One EC2 instance, as far as its operating system would know it."""

    id: str
    region: str
    state: str
    private_ip: str
    public_ip: str | None
    image_name: str
    image_id: str
    instance_type: str
    tags: dict[str, str]
    running_since: float | None
    """Unix seconds; None unless running."""
    generation: int
    """How often its operating system was started."""
    disk_gb: int | None = None
    """Of its root volume; None: as much as its instance type has here."""
    has_kvm: bool = True
    """Whether its processor runs virtual machines: bare metal, or by nested virtualization."""


class InstanceListing(msgspec.Struct, frozen=True, kw_only=True):
    """Every instance of every region; the version differs whenever anything in it does."""

    version: int
    instances: list[ListedInstance]
