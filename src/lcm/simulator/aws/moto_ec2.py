"""moto as EC2's wire protocol: its answers, with instances that live by the rules of `Machines`.

The only module that reaches into moto's private names, which is why moto is pinned exactly.
Imported after the environment that moto reads is set.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
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
from lcm.simulator.aws.addresses import SUBNETS, VPC
from lcm.simulator.aws.errors import Ec2Error
from lcm.simulator.aws.machines import Change, Machine, Machines
from lcm.simulator.aws.tokens import LaunchTokens
from lcm.simulator.listing import SimulatedInstance

ACCOUNT: Final = "123456789012"
KEY_NAME: Final = "cml-workers"
IMAGES: Final = (
    ("CML-2.8.1-20250310", "Cisco Modeling Labs 2.8.1", datetime(2025, 3, 10, tzinfo=UTC)),
    ("CML-2.9.0-20251102", "Cisco Modeling Labs 2.9.0", datetime(2025, 11, 2, tzinfo=UTC)),
    ("CML-2.9.1-20260415", "Cisco Modeling Labs 2.9.1", datetime(2026, 4, 15, tzinfo=UTC)),
    # Newer than all of the above: whoever takes just the newest image gets a machine without CML.
    ("build-agent-20260501", "Not a CML server", datetime(2026, 5, 1, tzinfo=UTC)),
)

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
    """moto's instance objects, kept in step with our machines (the `MachineView` of the server)."""

    def __init__(self) -> None:
        self._by_id: dict[str, Any] = {}

    def adopt(self, instance: Any) -> None:
        """Know moto's object for a machine that is about to be launched."""
        self._by_id[instance.id] = instance

    def show(self, machine: Machine) -> None:
        instance = self._by_id[machine.id]
        match machine.state:  # moto's own effects (volumes, reasons); the state it sets is replaced below
            case "stopping":
                instance.stop()
            case "shutting-down":
                instance.terminate()
            case "terminated" if machine.given_up is not None:
                instance.terminate()
                instance.state_reason = instances_module.StateReason(
                    f"{machine.given_up}: The simulator was told to give it up.", machine.given_up
                )
            case "pending":
                instance.start()
                instance.launch_time = utcnow()
        instance._state = instances_module.InstanceState(machine.state, STATE_CODES[machine.state])
        instance.nics[0].public_ip = machine.public_ip

    def drop(self, machine: Machine) -> None:
        instance = self._by_id.pop(machine.id)
        backend = instance.ec2_backend
        for reservation in list(backend.reservations.values()):
            if instance in reservation.instances:
                reservation.instances.remove(instance)
                if not reservation.instances:
                    del backend.reservations[reservation.id]
        for nic in instance.nics.values():
            if nic.id in backend.enis:
                nic.delete()
        backend.tags.pop(machine.id, None)

    def describe(self, machine: Machine) -> SimulatedInstance:
        """What the machine itself would know."""
        instance = self._by_id[machine.id]
        return SimulatedInstance(
            id=machine.id,
            region=machine.region,
            state=machine.state,
            private_ip=instance.private_ip,
            public_ip=machine.public_ip,
            image_name=instance.ec2_backend.amis[instance.image_id].name,
            image_id=instance.image_id,
            instance_type=instance.instance_type,
            tags=dict(instance.ec2_backend.tags.get(machine.id, {})),
            running_since=machine.running_since,
            generation=machine.generation,
        )


def furnish(region: str) -> RegionConfig:
    """Put network, key and images into an empty region."""
    backend: Any = ec2_backends[ACCOUNT][region]
    vpc = backend.create_vpc(str(VPC))
    subnet = backend.create_subnet(vpc.id, str(SUBNETS[region]), availability_zone=f"{region}a")
    group = backend.create_security_group("cml-workers", "CML workers", vpc_id=vpc.id)
    backend.create_key_pair(KEY_NAME, "ed25519", {})
    for name, description, created_at in IMAGES:
        backend.register_image(name, description).creation_date = created_at
    return RegionConfig(
        region=region,
        security_group_ids=(group.id,),
        subnet_id=subnet.id,
        key_name=KEY_NAME,
        default_tags={"environment": "simulation"},
    )


def launch(region: RegionConfig, instance_type: str, tags: dict[str, str]) -> str:
    """The id of a new instance with the newest CML image, without a call and its answer.

    Goes through the launch that `install` put in the place of moto's, as every other one does.
    """
    backend: Any = ec2_backends[ACCOUNT][region.region]
    newest, _, _ = max((image for image in IMAGES if image[0].startswith("CML-")), key=lambda image: image[2])
    (image_id,) = (ami.id for ami in backend.amis.values() if ami.name == newest)
    reservation = backend.run_instances(
        image_id,
        1,
        None,
        [],
        region_name=region.region,
        instance_type=instance_type,
        # A thousand machines take seconds instead of half a minute without moto's search for the type and
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


def install(machines: Machines, view: MotoInstances, subnet_ids: dict[str, str]) -> None:
    """Replace moto's idea of an instance's life by ours, once per process."""
    backend: Any = instances_module.InstanceBackend
    backend.run_instances = _run_instances(backend.run_instances, machines, view, subnet_ids)
    responses: Any = responses_module.InstanceResponse
    responses.start_instances = _moving("start", "StartingInstances", machines)
    responses.stop_instances = _moving("stop", "StoppingInstances", machines)
    responses.terminate_instances = _moving("terminate", "TerminatingInstances", machines)
    responses.reboot_instances = _rebooting(machines)
    # Public addresses come from the machines; moto would invent routable ones.
    nic: Any = interfaces_module.NetworkInterface
    nic.check_auto_public_ip = nic.stop = lambda self: None
    # moto matches every tag of the region against a pattern for each instance it lists.
    instance: Any = instances_module.Instance
    instance.get_tags = _own_tags
    ec2_utils.filter_dict_attribute_mapping["client-token"] = "client_token"


def _run_instances(
    launch: Callable[..., Any], machines: Machines, view: MotoInstances, subnet_ids: dict[str, str]
) -> Callable[..., Any]:
    tokens = LaunchTokens(machines)

    def run_instances(
        backend: Any, image_id: str, count: int, user_data: Any, group_names: list[str], **options: Any
    ) -> Any:
        region, token = options["region_name"], options["client_token"]
        parameters = copy.deepcopy((image_id, count, user_data, group_names, options))
        with _refusals_on_the_wire():
            known = None if token == NO_TOKEN else tokens.recall(region, token, parameters)
        if known is not None:
            return known
        _stay_on_loopback(options, subnet_ids.get(region))
        reservation = launch(backend, image_id, count, user_data, group_names, **options)
        for instance in reservation.instances:
            view.adopt(instance)
            machines.launch(instance.id, region)
        instance_ids = [instance.id for instance in reservation.instances]
        if token != NO_TOKEN:
            tokens.remember(region, token, parameters, instance_ids, reservation)
        return reservation

    return run_instances


def _stay_on_loopback(options: dict[str, Any], subnet_id: str | None) -> None:
    """Whatever names no subnet goes into ours, as if it were the account's default."""
    if not options["nics"]:
        options["subnet_id"] = options["subnet_id"] or subnet_id
    for nic in options["nics"]:
        if "NetworkInterfaceId" not in nic:
            nic.setdefault("SubnetId", subnet_id)


def _moving(move: str, answer: str, machines: Machines) -> Operation:
    def operation(self: Any) -> Any:
        self.error_on_dryrun()
        with _refusals_on_the_wire():
            changes = machines.move(move, self.region, self._get_param("InstanceIds", []))
        return ActionResult({answer: [_described(change) for change in changes]})

    return operation


def _rebooting(machines: Machines) -> Operation:
    def operation(self: Any) -> Any:
        self.error_on_dryrun()
        with _refusals_on_the_wire():
            machines.reboot(self.region, self._get_param("InstanceIds", []))
        return EmptyResult()

    return operation


@contextmanager
def _refusals_on_the_wire() -> Iterator[None]:
    try:
        yield
    except Ec2Error as refusal:
        raise EC2ClientError(refusal.code, refusal.message) from refusal


def _described(change: Change) -> dict[str, Any]:
    return {
        "InstanceId": change.machine.id,
        "CurrentState": _state(change.machine.state),
        "PreviousState": _state(change.previous),
    }


def _state(name: str) -> dict[str, Any]:
    return {"Code": STATE_CODES[name], "Name": name}


def _own_tags(instance: Any) -> list[dict[str, str]]:
    return [
        {"resource_id": instance.id, "key": key, "value": value, "resource_type": "instance"}
        for key, value in instance.ec2_backend.tags.get(instance.id, {}).items()
    ]
