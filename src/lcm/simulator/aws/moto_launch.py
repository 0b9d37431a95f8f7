"""What RunInstances takes of EC2's parameters beyond those that moto knows: images, volumes, profiles.

Like `moto_ec2` it reaches into moto's private names.
"""

from typing import Any, Final

from moto.ec2.models import amis as amis_module
from moto.ec2.models import iam_instance_profile as profiles_module
from moto.ec2.models import instances as instances_module
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import instances as responses_module
from moto.iam.models import iam_backends

from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.images import ACCOUNT, IMAGE_DISK_GB, IMAGES, ROOT_DEVICE

INSTANCE_PROFILE: Final = "cml-worker"
CAPACITY_RESERVATION: Final = "cr-0123456789abcdef0"
IGNORED_BY_MOTO: Final = ("CpuOptions", "CapacityReservationSpecification")


def furnish(backend: Any) -> None:
    """Put the images into an empty region, and an instance profile into the account."""
    for image in IMAGES:
        ami = backend.register_image(image.name, image.description)
        ami.creation_date, ami.owner_id, ami.state = image.created_at, image.owner, image.state
        ami.architecture, ami.root_device_type, ami.root_device_name = image.architecture, "ebs", ROOT_DEVICE
    iam = iam_backends[ACCOUNT]["aws"]
    if INSTANCE_PROFILE not in iam.instance_profiles:
        iam.create_instance_profile(INSTANCE_PROFILE, "/", [])


def install() -> None:
    """Teach moto those parameters, once per process."""
    ami: Any = amis_module.Ami
    ami.block_device_mappings = property(_volumes_of)
    ami.get_filter_value = _filter_value(ami.get_filter_value)
    instance: Any = instances_module.Instance
    instance.setup_defaults = _add_root_volume
    # A repeated launch gives the same instance, which has its profile already.
    profiles: Any = profiles_module.IamInstanceProfileAssociationBackend
    profiles.associate_iam_instance_profile = _associate_once(profiles.associate_iam_instance_profile)
    responses: Any = responses_module.InstanceResponse
    responses.run_instances = _with_every_parameter(responses.run_instances)
    responses.describe_instance_types = _with_dry_run(responses.describe_instance_types)


def requested(backend: Any) -> dict[str, Any]:
    """The parameters of the present RunInstances call that moto ignores."""
    return dict(getattr(backend, "lcm_requested", {}))


def check(backend: Any, image_id: str, options: dict[str, Any]) -> None:
    """Refuse what EC2 refuses and moto does not."""
    image = backend.amis.get(image_id)
    if image is not None and image.state != "available":
        raise Ec2Error("InvalidAMIID.Unavailable", f"The image id '[{image_id}]' is not available")
    for mapping in options.get("block_device_mappings") or []:
        if mapping["DeviceName"] == ROOT_DEVICE and int(mapping["Ebs"]["VolumeSize"]) < IMAGE_DISK_GB:
            raise Ec2Error(
                "InvalidBlockDeviceMapping",
                f"Volume of size {mapping['Ebs']['VolumeSize']}GB is smaller than snapshot, "
                f"expect size >= {IMAGE_DISK_GB}GB",
            )
    _check_nesting(options["instance_type"], requested(backend).get("CpuOptions", {}), options)
    target = requested(backend).get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    if target and target["CapacityReservationId"] != CAPACITY_RESERVATION:
        reservation = target["CapacityReservationId"]
        raise Ec2Error(
            "InvalidCapacityReservationId.NotFound", f"The reservation '{reservation}' does not exist"
        )


def has_kvm(instance: Any) -> bool:
    """Whether the processor runs virtual machines: bare metal, or by nested virtualization."""
    asked = (getattr(instance, "cpu_options", None) or {}).get("NestedVirtualization") == "enabled"
    return asked or bool(INSTANCE_TYPES[instance.instance_type].get("BareMetal"))


def apply_interfaces(options: dict[str, Any]) -> bool:
    """Put an instance into the security groups of its interfaces; whether it gets a public address.

    Our subnets give one unless the request says no.
    """
    for nic in options["nics"]:
        options["security_group_ids"] = [*options["security_group_ids"], *nic.get("Groups", [])]
    return all(nic.get("AssociatePublicIpAddress", True) for nic in options["nics"])


def disk_gb(instance: Any) -> int | None:
    """The size of the root volume; None for an instance that exists from the beginning."""
    root = instance.block_device_mapping.get(ROOT_DEVICE)
    return None if root is None else int(root.size)


def _check_nesting(instance_type: str, cpu: dict[str, Any], options: dict[str, Any]) -> None:
    if cpu.get("NestedVirtualization") != "enabled":
        return
    features = INSTANCE_TYPES.get(instance_type, {}).get("ProcessorInfo", {}).get("SupportedFeatures", [])
    if "nested-virtualization" not in features or options.get("instance_market_options"):
        raise Ec2Error(
            "InvalidParameterCombination",
            f"Nested virtualization is not supported for this launch of {instance_type}",
        )


def _volumes_of(image: Any) -> list[dict[str, Any]]:
    volume = {
        "SnapshotId": image.ebs_snapshot.id,
        "VolumeSize": IMAGE_DISK_GB,
        "DeleteOnTermination": False,
        "VolumeType": "gp2",
        "Encrypted": False,
    }
    return [{"DeviceName": ROOT_DEVICE, "Ebs": volume}]


def _filter_value(known: Any) -> Any:
    def get_filter_value(image: Any, name: str, method_name: str | None = None) -> Any:
        return image.root_device_type if name == "root-device-type" else known(image, name, method_name)

    return get_filter_value


def _add_root_volume(instance: Any) -> None:
    """The volume of an instance that is launched without a size: the image's."""
    instance.add_block_device(IMAGE_DISK_GB, ROOT_DEVICE, None, False, False, None, "gp2")


def _associate_once(associate: Any) -> Any:
    def associate_iam_instance_profile(backend: Any, instance_id: str, **profile: Any) -> Any:
        present = backend.iam_instance_profile_associations.get(instance_id)
        return present or associate(backend, instance_id, **profile)

    return associate_iam_instance_profile


def _with_every_parameter(run_instances: Any) -> Any:
    def operation(self: Any) -> Any:
        self.ec2_backend.lcm_requested = {
            name: value for name in IGNORED_BY_MOTO if (value := self._get_param(name, {}))
        }
        return run_instances(self)

    return operation


def _with_dry_run(describe: Any) -> Any:
    def operation(self: Any) -> Any:
        self.error_on_dryrun()
        return describe(self)

    return operation
