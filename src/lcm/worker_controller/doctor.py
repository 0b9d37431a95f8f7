"""The checks of `lcm doctor` on AWS and CML: what would stop a launch. Nothing is changed.

Every check stands alone: what one cannot find out is unknown on its own line and leaves the others as they
are. The rules are in `domain/diagnosis.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from lcm.domain import errors
from lcm.domain.diagnosis import (
    STANDARD_FAMILIES,
    Finding,
    Subnet,
    Verdict,
    failed,
    family_of,
    judge_clock,
    judge_ingress,
    judge_quota,
    judge_subnet,
    ok,
    unknown,
)
from lcm.domain.launch import Ami, InstanceId, WorkerId, instance_tags, kvm_mistake, launch_spec
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.domain.worker import Instance
from lcm.worker_controller.ports import (
    CHANGING_ACTIONS,
    READING_ACTIONS,
    CallerIdentity,
    CloudInspection,
    CloudProvider,
    CmlSystem,
    MetricsProvider,
)

NO_INSTANCE: Final = InstanceId("i-00000000000000000")
"""CloudWatch has no data of it, and says so only to who may ask."""
INTERNET: Final = "192.0.2.1"
"""An address of documentation (RFC 5737): which of ours would a connection to the Internet have?"""


@dataclass(frozen=True)
class LaunchSettings:
    """The settings in force that decide a launch."""

    regions: Mapping[str, RegionConfig]
    templates: Sequence[WorkerTemplate]
    account_id: str | None
    environment: str
    cml_port: int
    use_private_ip: bool
    source: str | None
    """The address that AWS sees of this host; None: its own."""


class LaunchDoctor:
    """Examines what a launch needs of AWS, and the CML servers that run."""

    def __init__(
        self,
        settings: LaunchSettings,
        cloud: CloudProvider,
        inspection: CloudInspection,
        metrics: MetricsProvider,
        cml: CmlSystem,
        own_address_towards: Callable[[str], str | None],
    ) -> None:
        self._settings = settings
        self._cloud = cloud
        self._inspection = inspection
        self._metrics = metrics
        self._cml = cml
        self._own_address_towards = own_address_towards
        self._templates = [template for template in settings.templates if template.enabled]

    async def examine(self) -> list[Finding]:
        """Every finding, in the order in which an operator would mend them."""
        identity, findings = await self._credentials()
        findings.append(await _checked("clock", self._clock()))
        async with asyncio.TaskGroup() as tasks:
            examinations = [
                tasks.create_task(self._region(region, is_known=identity is not None))
                for region in self._settings.regions.values()
            ]
        return findings + [finding for examined in examinations for finding in examined.result()]

    async def _credentials(self) -> tuple[CallerIdentity | None, list[Finding]]:
        try:
            identity = await self._inspection.caller_identity()
        except errors.CredentialsRefused as error:
            return None, [failed("credentials", str(error)), unknown("account", "it is not known")]
        except errors.LcmError as error:
            return None, [unknown("credentials", str(error)), unknown("account", "it is not known")]
        expected = self._settings.account_id
        account = (
            failed("account", f"the credentials are of {identity.account}, AWS_ACCOUNT_ID is {expected}")
            if expected not in (None, identity.account)
            else ok("account", identity.account)
        )
        return identity, [ok("credentials", identity.arn), account]

    async def _clock(self) -> Finding:
        return judge_clock(await self._inspection.clock_skew())

    async def _region(self, region: RegionConfig, *, is_known: bool) -> list[Finding]:
        name = region.region
        instances = await self._ours(name)
        distinct = dict.fromkeys(map(_wanted, self._templates))
        images = {wanted: await self._image(name, wanted) for wanted in distinct}
        launches = [
            await self._try_launch(region, template, images[_wanted(template)])
            for template in self._templates
        ]
        findings = (
            await self._permissions(name, instances, launches)
            if is_known
            else [unknown(f"permissions {name}", "the credentials are not known to be accepted")]
        )
        findings += [
            ok(wanted.check(name), f"{image.name} ({image.id})") if isinstance(image, Ami) else image
            for wanted, image in images.items()
        ]
        findings += await self._subnets(region)
        findings.append(await _checked(f"security groups {name}", self._ingress(region, instances)))
        findings += [
            await _checked(f"template {name} {launch.template.name}", self._template(name, launch))
            for launch in launches
        ]
        findings.append(await _checked(f"quota {name}", self._quota(name)))
        return findings + await self._servers(name, instances)

    async def _ours(self, region: str) -> Sequence[Instance] | None:
        """The instances of the fleet; None if they cannot be listed, which is a finding of its own."""
        try:
            instances = await self._cloud.list_instances(region)
        except errors.LcmError:
            return None
        return [instance for instance in instances if not instance.is_gone]

    # Permissions.

    async def _permissions(
        self, region: str, instances: Sequence[Instance] | None, launches: Iterable["_Launch"]
    ) -> list[Finding]:
        findings = [await self._permission(region, action, None) for action in READING_ACTIONS]
        findings.append(_launch_permission(f"ec2:RunInstances {region}", list(launches)))
        for action in CHANGING_ACTIONS:
            if instances:
                findings.append(await self._permission(region, action, instances[0].id))
            else:
                detail = "only an instance tagged cml-managed=true can show it: check again after a launch"
                findings.append(unknown(f"ec2:{action} {region}", detail))
        return [*findings, await self._measuring(region)]

    async def _permission(self, region: str, action: str, instance_id: InstanceId | None) -> Finding:
        check = f"ec2:{action} {region}"
        return await _permitted(check, self._inspection.dry_run(region, action, instance_id))

    async def _measuring(self, region: str) -> Finding:
        """CloudWatch has no dry run; a question about no instance is as harmless."""
        check = f"cloudwatch:GetMetricData {region}"
        return await _permitted(check, self._metrics.get_instance_metrics(region, [NO_INSTANCE]))

    # What a launch is made of.

    async def _image(self, region: str, wanted: "_Wanted") -> Ami | Finding:
        try:
            return await self._cloud.resolve_ami(region, wanted.pattern, wanted.owners)
        except errors.ImageNotFound as error:
            return failed(wanted.check(region), str(error))
        except errors.LcmError as error:
            return unknown(wanted.check(region), str(error))

    async def _try_launch(
        self, region: RegionConfig, template: WorkerTemplate, image: Ami | Finding
    ) -> "_Launch":
        if not isinstance(image, Ami):
            return _Launch(template, None)
        name = f"doctor-{template.name}"[:63]
        tags = instance_tags(
            worker_id=WorkerId(name),
            name=name,
            template_name=template.name,
            region=region,
            overrides={},
            environment=self._settings.environment,
        )
        spec = launch_spec(region=region, template=template, image=image, tags=tags)
        try:
            await self._inspection.dry_run_launch(spec)
        except errors.LcmError as error:
            return _Launch(template, error)
        return _Launch(template, None, is_permitted=True)

    async def _subnets(self, region: RegionConfig) -> list[Finding]:
        checks = {subnet_id: f"subnet {region.region} {subnet_id}" for subnet_id in region.subnets}
        try:
            found = await self._inspection.describe_subnets(region.region, region.subnets)
        except errors.LcmError as error:
            return [unknown(check, str(error)) for check in checks.values()]
        by_id = {subnet.id: subnet for subnet in found}
        without_public = (
            []
            if self._settings.use_private_ip
            else [template.name for template in self._templates if template.associate_public_ip is None]
        )
        return [
            judge_subnet(check, by_id.get(subnet_id), without_public) for subnet_id, check in checks.items()
        ]

    async def _ingress(self, region: RegionConfig, instances: Sequence[Instance] | None) -> Finding:
        check, port = f"security groups {region.region}", self._settings.cml_port
        try:
            rules = await self._inspection.describe_ingress(region.region, region.security_group_ids)
        except errors.LaunchRefused as error:
            return failed(check, str(error))
        source = self._settings.source or await self._own_address(region, instances or ())
        return judge_ingress(check, rules, port, source)

    async def _own_address(self, region: RegionConfig, instances: Sequence[Instance]) -> str | None:
        """The address from which this host reaches workers, as far as it can know it: not behind NAT."""
        private = self._settings.use_private_ip
        running = [instance for instance in instances if instance.state == "running"]
        addresses = [address for each in running if (address := _address(each, use_private_ip=private))]
        if not addresses and private:
            addresses = [
                _first_host(subnet)
                for subnet in await self._inspection.describe_subnets(region.region, region.subnets)
            ]
        target = addresses[0] if addresses else INTERNET
        own = self._own_address_towards(target)
        if own is None:
            return None
        is_far = target == INTERNET or ip_address(target).is_global
        return None if is_far and not ip_address(own).is_global else own

    async def _template(self, region: str, launch: "_Launch") -> Finding:
        template, check = launch.template, f"template {region} {launch.template.name}"
        if isinstance(launch.error, errors.PermanentError):
            return failed(check, str(launch.error))
        try:
            facts = await self._cloud.describe_instance_type(region, template.instance_type)
        except errors.InstanceTypeUnfit as error:
            return failed(check, str(error))
        if mistake := kvm_mistake(template, facts):
            return failed(check, mistake)
        if template.nested_virtualization:
            return ok(check, f"{template.instance_type} has KVM by nested virtualization")
        if facts.is_bare_metal:
            return ok(check, f"{template.instance_type} is bare metal and has KVM")
        return ok(check, f"{template.instance_type} has no KVM, which allow_without_kvm accepts")

    async def _quota(self, region: str) -> Finding:
        check = f"quota {region}"
        counted = [each for each in self._templates if family_of(each.instance_type) in STANDARD_FAMILIES]
        others = [each.name for each in self._templates if each not in counted]
        limit = await self._inspection.vcpu_quota(region)
        used = await self._inspection.vcpus_in_use(region)
        vcpus = await self._inspection.vcpus_of(region, sorted({each.instance_type for each in counted}))
        needed = {each.name: vcpus[each.instance_type] for each in counted if each.instance_type in vcpus}
        finding = judge_quota(check, limit, used, needed)
        if others and finding.verdict is Verdict.OK:
            return unknown(check, f"{finding.detail}; {', '.join(others)} count against another quota")
        return finding

    # The CML servers that run.

    async def _servers(self, region: str, instances: Sequence[Instance] | None) -> list[Finding]:
        running = [instance for instance in instances or () if instance.state == "running"]
        if not running:
            return [unknown(f"cml {region}", "no worker runs: check again after a launch")]
        async with asyncio.TaskGroup() as tasks:
            checks = [tasks.create_task(self._server(instance)) for instance in running]
        return [check.result() for check in checks]

    async def _server(self, instance: Instance) -> Finding:
        check = f"cml {instance.id}"
        host = _address(instance, use_private_ip=self._settings.use_private_ip)
        if host is None:
            return failed(check, "the instance has no address to reach it at")
        try:
            information = await self._cml.get_system_information(host, None)
        except errors.LcmError as error:
            return failed(check, str(error))
        state = "ready" if information.ready else "not ready yet"
        return ok(check, f"{host} answers: CML {information.version}, {state}")


class _Wanted(NamedTuple):
    """The images that a template takes."""

    pattern: str
    owners: tuple[str, ...]

    def check(self, region: str) -> str:
        of_others = f" of {','.join(self.owners)}" if self.owners != ("self",) else ""
        return f"image {region} {self.pattern}{of_others}"


def _wanted(template: WorkerTemplate) -> _Wanted:
    return _Wanted(template.ami_name_pattern, template.ami_owners)


@dataclass(frozen=True)
class _Launch:
    """A dry run of a template's launch."""

    template: WorkerTemplate
    error: errors.LcmError | None
    is_permitted: bool = False


def _launch_permission(check: str, launches: Sequence[_Launch]) -> Finding:
    denied = [each for each in launches if isinstance(each.error, errors.CredentialsRefused)]
    if denied:
        names = ", ".join(each.template.name for each in denied)
        hint = (
            "; a template with iam_instance_profile needs iam:PassRole too"
            if any(each.template.iam_instance_profile for each in denied)
            else ""
        )
        return failed(check, f"denied for {names}: {denied[0].error}{hint}")
    if any(each.is_permitted for each in launches):
        return ok(check, "permitted")
    reasons = [str(each.error) for each in launches if each.error is not None]
    return unknown(check, reasons[0] if reasons else "no template has an image to try it with")


async def _permitted(check: str, asked: Awaitable[object]) -> Finding:
    try:
        await asked
    except errors.CredentialsRefused as error:
        return failed(check, str(error))
    except errors.LcmError as error:
        return unknown(check, str(error))
    return ok(check, "permitted")


async def _checked(check: str, judged: Awaitable[Finding]) -> Finding:
    """Return its finding, or unknown if it could not be made."""
    try:
        return await judged
    except errors.LcmError as error:
        return unknown(check, str(error))


def _address(instance: Instance, *, use_private_ip: bool) -> str | None:
    if use_private_ip:
        return instance.private_ip
    return instance.public_ip or instance.private_ip


def _first_host(subnet: Subnet) -> str:
    return str(next(ip_network(subnet.network).hosts()))
