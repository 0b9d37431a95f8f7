"""`lcm doctor`: what would stop a launch with the settings in force. Nothing is changed.

The checks of AWS and CML are the worker controller's (`worker_controller/doctor.py`); those of the stores and
of this host are here.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lcm.cli.regions import read_regions
from lcm.cli.settings import PROCESSES, WrongSettings, load
from lcm.control_plane.records.templates import read_templates
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.store.port import StoreUnavailable
from lcm.core.clock import SystemClock
from lcm.core.configuration import ConfigurationError, read_yaml
from lcm.core.ids import RandomIds
from lcm.core.kv.port import KvUnavailable
from lcm.core.settings import CoordinationSettings
from lcm.domain.diagnosis import Finding, failed, judge_disk, ok
from lcm.domain.template import RegionConfig, WorkerTemplate
from lcm.worker_controller.adapters.ec2 import Ec2Settings
from lcm.worker_controller.main import launch_doctor
from lcm.worker_controller.settings import WorkerControllerSettings


async def examine(config: Path | None, flags: Mapping[str, str], source: str | None) -> list[Finding]:
    """Every finding for the settings in force; `source` is this host's address, as AWS sees it."""
    findings: list[Finding] = []
    loaded = {}
    for process in ("control-plane", "worker-controller"):
        try:
            loaded[process] = load(process, PROCESSES[process], config, flags).settings
        except WrongSettings as wrong:
            findings += [failed(f"settings {process}", problem) for problem in wrong.problems]
        else:
            findings.append(ok(f"settings {process}", "valid"))
    plane, controller = loaded.get("control-plane"), loaded.get("worker-controller")
    templates: Sequence[WorkerTemplate] = ()
    if isinstance(plane, ControlPlaneSettings):
        templates, mistakes = _templates(plane.worker_templates_config_path)
        findings += [*mistakes, await _store(plane), _disk(plane.data_dir)]
    if isinstance(controller, WorkerControllerSettings):
        regions, about_regions = _regions(controller.regions_config_path)
        findings += [about_regions, await _etcd(controller)]
        ec2 = Ec2Settings(endpoint_url=controller.aws_endpoint_url)
        async with launch_doctor(controller, regions, templates, ec2, SystemClock(), source) as doctor:
            findings += await doctor.examine()
    return findings


def _regions(path: Path) -> tuple[Mapping[str, RegionConfig], Finding]:
    check = f"regions {path}"
    try:
        regions, _ = read_regions(path)
    except ConfigurationError as error:
        return {}, failed(check, str(error))
    return regions, ok(check, ", ".join(regions))


def _templates(path: Path) -> tuple[Sequence[WorkerTemplate], list[Finding]]:
    check = f"templates {path}"
    try:
        templates, mistakes = read_templates(read_yaml(path))
    except ConfigurationError as error:
        return (), [failed(check, str(error))]
    if mistakes:
        return templates, [failed(check, str(mistake)) for mistake in mistakes]
    return templates, [ok(check, f"{sum(template.enabled for template in templates)} enabled")]


async def _store(settings: ControlPlaneSettings) -> Finding:
    check = "mongodb"
    if settings.store_url is None:
        return ok(check, f"not used: the records are in {settings.data_dir}, for one control plane")
    from lcm.control_plane.store.mongodb import ask_for_schema  # an extra

    try:
        schema = await ask_for_schema(settings.store_url.get_secret_value())
    except StoreUnavailable as error:
        return failed(check, str(error))
    return ok(check, "it answers" if schema is not None else "it answers and has no records yet")


async def _etcd(settings: CoordinationSettings) -> Finding:
    check = "etcd"
    if not settings.uses_etcd:
        return ok(check, "not used: one process of each kind, without failover")
    from lcm.core.kv.etcd import EtcdKv  # an extra

    options = settings.etcd_options()
    try:
        async with EtcdKv(options, SystemClock(), RandomIds()) as kv:
            await kv.get(options.identity_key)
    except KvUnavailable as error:
        return failed(check, str(error))
    return ok(check, f"{', '.join(options.endpoints)} answers")


def _disk(data_dir: Path) -> Finding:
    check = f"disk {data_dir}"
    existing = data_dir.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        return failed(check, f"{existing} is not a directory")
    if not os.access(existing, os.W_OK):
        return failed(check, f"{existing} cannot be written")
    return judge_disk(check, shutil.disk_usage(existing).free)
