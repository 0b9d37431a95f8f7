"""A launch spec as a RunInstances request. Pure: the same spec and token always give the same request."""

from typing import Any

from lcm.domain.launch import LaunchSpec, RootVolume


def launch_request(spec: LaunchSpec, client_token: str) -> dict[str, Any]:
    """Every parameter of the call; what the spec leaves open is not in it."""
    tags = [{"Key": key, "Value": value} for key, value in sorted(spec.tags.items())]
    request: dict[str, Any] = {
        "ImageId": spec.image.id,
        "InstanceType": spec.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token,
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "volume", "Tags": tags},
        ],
        **_network(spec),
    }
    if spec.key_name is not None:
        request["KeyName"] = spec.key_name
    if spec.root_volume is not None:
        request["BlockDeviceMappings"] = [_root_device(spec.root_volume)]
    if spec.iam_instance_profile is not None:
        kind = "Arn" if spec.iam_instance_profile.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {kind: spec.iam_instance_profile}
    if spec.user_data is not None:
        request["UserData"] = spec.user_data  # the SDK encodes it
    if spec.metadata_http_tokens is not None:
        request["MetadataOptions"] = {"HttpTokens": spec.metadata_http_tokens}
    if spec.capacity_reservation is not None:
        target = {"CapacityReservationId": spec.capacity_reservation}
        request["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    if spec.nested_virtualization:
        request["CpuOptions"] = {"NestedVirtualization": "enabled"}
    return request


def _network(spec: LaunchSpec) -> dict[str, Any]:
    """Subnet and security groups; only as an interface can they say whether there is a public address."""
    if spec.associate_public_ip is None:
        return {"SecurityGroupIds": list(spec.security_group_ids), "SubnetId": spec.subnet_id}
    interface = {
        "DeviceIndex": 0,
        "SubnetId": spec.subnet_id,
        "Groups": list(spec.security_group_ids),
        "AssociatePublicIpAddress": spec.associate_public_ip,
        "DeleteOnTermination": True,
    }
    return {"NetworkInterfaces": [interface]}


def _root_device(volume: RootVolume) -> dict[str, Any]:
    ebs: dict[str, Any] = {
        "VolumeSize": volume.size_gb,
        "VolumeType": "gp3",
        "DeleteOnTermination": True,
    }
    if volume.is_encrypted:  # never False: EC2 refuses that where the image's snapshot is encrypted
        ebs["Encrypted"] = True
    if volume.kms_key_id is not None:
        ebs["KmsKeyId"] = volume.kms_key_id
    return {"DeviceName": volume.device, "Ebs": ebs}
