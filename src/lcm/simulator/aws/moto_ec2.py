"""moto as EC2's wire protocol: its answers, with the instance lifecycle of `SimulatedInstances`.

One of the modules that reach into moto's private names, which is why moto is pinned exactly.
Imported after the environment that moto reads is set.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2 import utils as ec2_utils
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models import elastic_network_interfaces as interfaces_module
from moto.ec2.models import instances as instances_module
from moto.ec2.responses import instances as responses_module

from lcm.domain.template import RegionConfig
from lcm.simulator.aws import moto_launch
from lcm.simulator.aws.addresses import LOOPBACK, SUBNETS, VPC
from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.images import ACCOUNT, newest_for_workers
from lcm.simulator.aws.instances import SimulatedInstance, SimulatedInstances, StateChange
from lcm.simulator.aws.tokens import LaunchTokens
from lcm.simulator.listing import ListedInstance

KEY_NAME: Final = "cml-workers"
DISK_USD_PER_GB_MONTH: Final = 0.08

STATE_CODES: Final = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}

NO_TOKEN: Final = "ABCDE"
"""What moto puts where a request has no client token."""

Operation = Callable[[Any], Any]


class MotoInstances:
    """moto's instance objects, kept in step with `SimulatedInstances` (the `InstanceView` of the server)."""

    def __init__(self) -> None:
        self._by_id: dict[str, Any] = {}

    def adopt(self, instance: Any) -> None:
        """Register moto's object for an instance that is about to be launched."""
        self._by_id[instance.id] = instance

    def show(self, instance: SimulatedInstance) -> None:
        moto_instance = self._by_id[instance.id]
        match instance.state:  # moto's own effects (volumes, reasons); the state it sets is replaced below
            case "stopping":
                moto_instance.stop()
            case "shutting-down":
                moto_instance.terminate()
            case "terminated" if instance.failure_code is not None:
                moto_instance.terminate()
                moto_instance.state_reason = instances_module.StateReason(
                    f"{instance.failure_code}: Fault injected by the simulator.", instance.failure_code
                )
            case "pending":
                moto_instance.start()
                moto_instance.launch_time = utcnow()
        moto_instance._state = instances_module.InstanceState(instance.state, STATE_CODES[instance.state])
        moto_instance.nics[0].public_ip = instance.public_ip

    def drop(self, instance: SimulatedInstance) -> None:
        moto_instance = self._by_id.pop(instance.id)
        backend = moto_instance.ec2_backend
        for reservation in list(backend.reservations.values()):
            if moto_instance in reservation.instances:
                reservation.instances.remove(moto_instance)
                if not reservation.instances:
                    del backend.reservations[reservation.id]
        for nic in moto_instance.nics.values():
            if nic.id in backend.enis:
                nic.delete()
        backend.tags.pop(instance.id, None)

    def describe(self, instance: SimulatedInstance) -> ListedInstance:
        """Describe the instance as its operating system would know it."""
        moto_instance = self._by_id[instance.id]
        return ListedInstance(
            id=instance.id,
            region=instance.region,
            state=instance.state,
            private_ip=moto_instance.private_ip,
            public_ip=instance.public_ip,
            image_name=moto_instance.ec2_backend.amis[moto_instance.image_id].name,
            image_id=moto_instance.image_id,
            instance_type=moto_instance.instance_type,
            tags=dict(moto_instance.ec2_backend.tags.get(instance.id, {})),
            running_since=instance.running_since,
            generation=instance.generation,
            disk_gb=moto_launch.disk_gb(moto_instance),
            has_kvm=moto_launch.has_kvm(moto_instance),
        )


def furnish(region: str) -> RegionConfig:
    """Put network, key and images into an empty region."""
    backend: Any = ec2_backends[ACCOUNT][region]
    vpc = backend.create_vpc(str(VPC))
    subnet = backend.create_subnet(vpc.id, str(SUBNETS[region]), availability_zone=f"{region}a")
    subnet.map_public_ip_on_launch = True
    group = backend.create_security_group("cml-workers", "CML workers", vpc_id=vpc.id)
    backend.authorize_security_group_ingress(group.id, "tcp", "0", "65535", [{"CidrIp": str(LOOPBACK)}])
    backend.create_key_pair(KEY_NAME, "ed25519", {})
    moto_launch.furnish(backend)
    return RegionConfig(
        region=region,
        security_group_ids=(group.id,),
        subnet_id=subnet.id,
        key_name=KEY_NAME,
        default_tags={"environment": "simulation"},
        disk_usd_per_gb_month=DISK_USD_PER_GB_MONTH,
    )


def launch(region: RegionConfig, instance_type: str, tags: dict[str, str]) -> str:
    """The id of a new instance with the newest CML image, without a call on the wire.

    Goes through the launch that `install` put in the place of moto's, as every other one does.
    """
    backend: Any = ec2_backends[ACCOUNT][region.region]
    (image_id,) = (ami.id for ami in backend.amis.values() if ami.name == newest_for_workers().name)
    reservation = backend.run_instances(
        image_id,
        1,
        None,
        [],
        region_name=region.region,
        instance_type=instance_type,
        # A thousand instances take seconds instead of half a minute without moto's search for the type and
        # without volumes, for each of which it walks over all instances.
        is_instance_type_default=True,
        block_device_mappings={},
        subnet_id=region.subnet_id,
        key_name=region.key_name,
        security_group_ids=list(region.security_group_ids),
        nics=[],
        tags={"instance": {**region.default_tags, **tags}},
        client_token=NO_TOKEN,
    )
    instance_id: str = reservation.instances[0].id
    return instance_id


def install(instances: SimulatedInstances, view: MotoInstances, subnet_ids: dict[str, str]) -> None:
    """Replace moto's instance lifecycle by `SimulatedInstances`, once per process."""
    backend: Any = instances_module.InstanceBackend
    backend.run_instances = _run_instances(backend.run_instances, instances, view, subnet_ids)
    responses: Any = responses_module.InstanceResponse
    responses.start_instances = _state_change("start", "StartingInstances", instances)
    responses.stop_instances = _state_change("stop", "StoppingInstances", instances)
    responses.terminate_instances = _state_change("terminate", "TerminatingInstances", instances)
    responses.reboot_instances = _rebooting(instances)
    # Public addresses come from `SimulatedInstances`; moto would invent routable ones.
    nic: Any = interfaces_module.NetworkInterface
    nic.check_auto_public_ip = nic.stop = lambda self: None
    # moto matches every tag of the region against a pattern for each instance it lists.
    instance: Any = instances_module.Instance
    instance.get_tags = _own_tags
    moto_launch.install()
    ec2_utils.filter_dict_attribute_mapping["client-token"] = "client_token"


def _run_instances(
    launch: Callable[..., Any], instances: SimulatedInstances, view: MotoInstances, subnet_ids: dict[str, str]
) -> Callable[..., Any]:
    tokens = LaunchTokens(instances)

    def run_instances(
        backend: Any, image_id: str, count: int, user_data: Any, group_names: list[str], **options: Any
    ) -> Any:
        region, token = options["region_name"], options["client_token"]
        requested, encoded = moto_launch.requested(backend), user_data and user_data.as_bytes()
        parameters = copy.deepcopy((image_id, count, encoded, group_names, options, requested))
        with _refusals_on_the_wire():
            known = None if token == NO_TOKEN else tokens.recall(region, token, parameters)
            if known is None:
                moto_launch.check(backend, image_id, options)
        if known is not None:
            return known
        _stay_on_loopback(options, subnet_ids.get(region))
        is_public = moto_launch.apply_interfaces(options)
        reservation = launch(backend, image_id, count, user_data, group_names, **options)
        for instance in reservation.instances:
            view.adopt(instance)
            instance.cpu_options = requested.get("CpuOptions")
            instances.launch(instance.id, region, has_public_address=is_public)
        instance_ids = [instance.id for instance in reservation.instances]
        if token != NO_TOKEN:
            tokens.remember(region, token, parameters, instance_ids, reservation)
        return reservation

    return run_instances


def _stay_on_loopback(options: dict[str, Any], subnet_id: str | None) -> None:
    """Put a launch that names no subnet into ours, as if it were the account's default."""
    if not options["nics"]:
        options["subnet_id"] = options["subnet_id"] or subnet_id
    for nic in options["nics"]:
        if "NetworkInterfaceId" not in nic:
            nic.setdefault("SubnetId", subnet_id)


def _state_change(name: str, answer: str, instances: SimulatedInstances) -> Operation:
    def operation(self: Any) -> Any:
        self.error_on_dryrun()
        with _refusals_on_the_wire():
            changes = instances.change_state(name, self.region, self._get_param("InstanceIds", []))
        return ActionResult({answer: [_described(change) for change in changes]})

    return operation


def _rebooting(instances: SimulatedInstances) -> Operation:
    def operation(self: Any) -> Any:
        self.error_on_dryrun()
        with _refusals_on_the_wire():
            instances.reboot(self.region, self._get_param("InstanceIds", []))
        return EmptyResult()

    return operation


@contextmanager
def _refusals_on_the_wire() -> Iterator[None]:
    try:
        yield
    except Ec2Error as refusal:
        raise EC2ClientError(refusal.code, refusal.message) from refusal


def _described(change: StateChange) -> dict[str, Any]:
    return {
        "InstanceId": change.instance.id,
        "CurrentState": _state(change.instance.state),
        "PreviousState": _state(change.previous),
    }


def _state(name: str) -> dict[str, Any]:
    return {"Code": STATE_CODES[name], "Name": name}


def _own_tags(instance: Any) -> list[dict[str, str]]:
    return [
        {"resource_id": instance.id, "key": key, "value": value, "resource_type": "instance"}
        for key, value in instance.ec2_backend.tags.get(instance.id, {}).items()
    ]
