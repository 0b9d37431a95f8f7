"""`lcm up`: everything in one process, on the embedded default.

The control plane and the controllers talk over HTTP and the in-process coordination store, exactly as they
would on different hosts. The simulator is a child process.
"""

import asyncio
import os
import random
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec
from pydantic_settings import BaseSettings

from lcm.cli.demo_sessions import create_demo_sessions, license_fleet
from lcm.cli.links import sign_in_link
from lcm.cli.process import spare_loaded_code
from lcm.cli.processes import StartFailed
from lcm.cli.regions import read_regions
from lcm.cli.settings import PROCESSES, load
from lcm.cli.simulator_child import SimulatorChild
from lcm.control_plane.main import ControlPlaneProcess, control_plane_process
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.clock import Clock, SystemClock
from lcm.core.election import Election
from lcm.core.hosted_service import run_services
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.timeouts import timeout
from lcm.core.tls import ClientContext, TlsFiles, trust_of
from lcm.domain.template import RegionConfig
from lcm.lablet_controller.main import LabletControllerProcess, lablet_controller_process
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.resource_scheduler.main import ResourceSchedulerProcess, resource_scheduler_process
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.rest.documents import fetch_document, post_form
from lcm.rest.schemas import LABLET_CONTROLLER, RESOURCE_SCHEDULER, WORKER_CONTROLLER
from lcm.simulator.main import SimulationInfo
from lcm.worker_controller.adapters.ec2 import Ec2Settings
from lcm.worker_controller.main import WorkerControllerProcess, worker_controller_process
from lcm.worker_controller.settings import WorkerControllerSettings

S = TypeVar("S", bound=BaseSettings)

READY_WITHIN_SECONDS = 30.0

DEMO_FLEET = (
    ("ccna-morning", "metal"),
    ("ccnp-routing", "large"),
    ("devnet-core", "medium"),
    ("security-lab", "small"),
    ("wireless-101", "micro"),
)


@dataclass(frozen=True)
class UpOptions:
    """The options of `lcm up`."""

    port: int
    worker_controller_port: int
    resource_scheduler_port: int
    lablet_controller_port: int
    data_dir: Path | None
    workers: int
    seed: int
    aws_endpoint: str | None
    templates: Path | None
    """None: as the setting says; so is `regions`."""
    regions: Path | None
    demo_sessions: bool = False
    tls: bool = False


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Everything answers. Printed once, as the only line on standard output."""

    url: str
    token: str
    ports: dict[str, int]
    pid: int
    data_dir: str
    aws_endpoint: str | None
    ca_file: str | None = None
    """The authority of the certificate, with `--tls`."""


@dataclass(frozen=True)
class Cloud:
    """The AWS that LCM works with."""

    regions: Mapping[str, RegionConfig]
    default_region: str
    ec2: Ec2Settings
    cml_port: int
    simulation: SimulationInfo | None = None


async def up(options: UpOptions, simulator: SimulatorChild | None, announce: Callable[[Ready], None]) -> None:
    """Run LCM until cancelled; `announce` is called once, when everything answers."""
    clock, ids = SystemClock(), RandomIds()
    kv = MemoryKv(clock, ids)
    cloud = await _cloud(options, simulator)
    with data_dir_for(options, is_simulated=cloud.simulation is not None) as data_dir:
        tls = settings_of(own_tls(data_dir / "tls", clock)) if options.tls else {}
        plane_settings = _settings(
            "control-plane",
            ControlPlaneSettings,
            **tls,
            CONTROL_PLANE_PORT=options.port,
            LCM_DATA_DIR=data_dir,
            AWS_REGION=cloud.default_region,
            **({"WORKER_TEMPLATES_CONFIG_PATH": options.templates} if options.templates else {}),
            CML_WORKER_API_PORT=cloud.cml_port,
        )
        trust = plane_settings.tls.client_context()
        async with control_plane_process(
            plane_settings,
            kv,
            clock,
            ids,
            cloud.regions,
            fetch_document,
            post_form=post_form,
        ) as control_plane:
            controller_settings = _settings(
                "worker-controller",
                WorkerControllerSettings,
                **tls,
                WORKER_CONTROLLER_PORT=options.worker_controller_port,
                CONTROL_PLANE_API_URL=control_plane.url,
                CONTROL_PLANE_API_KEY=control_plane.service_keys.sent_by(WORKER_CONTROLLER),
                CML_WORKER_API_PORT=cloud.cml_port,
                AWS_REGION=cloud.default_region,
                **_cml_login(cloud.simulation),
            )
            scheduler_settings = _settings(
                "resource-scheduler",
                ResourceSchedulerSettings,
                **tls,
                RESOURCE_SCHEDULER_PORT=options.resource_scheduler_port,
                CONTROL_PLANE_API_URL=control_plane.url,
                CONTROL_PLANE_API_KEY=control_plane.service_keys.sent_by(RESOURCE_SCHEDULER),
            )
            lablet_settings = _settings(
                "lablet-controller",
                LabletControllerSettings,
                **tls,
                LABLET_CONTROLLER_PORT=options.lablet_controller_port,
                CONTROL_PLANE_API_URL=control_plane.url,
                CONTROL_PLANE_API_KEY=control_plane.service_keys.sent_by(LABLET_CONTROLLER),
                CML_WORKER_API_PORT=cloud.cml_port,
                **_cml_login(cloud.simulation),
            )
            async with (
                worker_controller_process(
                    controller_settings, cloud.regions, cloud.ec2, kv, clock, ids
                ) as controller,
                resource_scheduler_process(scheduler_settings, kv, clock, ids) as scheduler,
                lablet_controller_process(lablet_settings, kv, clock, ids) as lablets,
                asyncio.TaskGroup() as tasks,
            ):
                services = (
                    *control_plane.services,
                    *controller.services,
                    *scheduler.services,
                    *lablets.services,
                )
                tasks.create_task(run_services(kv, *services))
                elections = (controller.controller.election, scheduler.election, lablets.election)
                try:
                    await _wait_until_ready(control_plane, elections, clock, trust)
                except TimeoutError:
                    missing = (
                        f"not ready within {READY_WITHIN_SECONDS:g} s; --log-level INFO shows what is missing"
                    )
                    raise StartFailed(missing) from None
                if cloud.simulation is not None:
                    await create_demo_fleet(
                        control_plane.url,
                        control_plane.keys.admin,
                        options,
                        cloud.simulation.license_token,
                        trust,
                    )
                spare_loaded_code()
                link = await sign_in_link(control_plane.url, control_plane.keys.admin, trust)
                ready = _ready(link, control_plane, controller, scheduler, lablets, cloud, data_dir)
                announce(msgspec.structs.replace(ready, ca_file=tls.get("LCM_TLS_CA_FILE")))


def _settings(process: str, kind: type[S], **overrides: object) -> S:
    """Load from the environment, except what `lcm up` decides. Raises WrongSettings, without secrets."""
    return load(process, kind, None, {name: str(value) for name, value in overrides.items()}).settings


def own_tls(directory: Path, clock: Clock) -> TlsFiles:
    """Make a certificate for the addresses on which the processes listen."""
    from lcm.cli.own_certificates import certificate_of_this_host  # slow to load

    hosts = [load(name, kind, None, {}).settings.model_dump()["host"] for name, kind in PROCESSES.items()]
    return certificate_of_this_host(directory.absolute(), hosts, clock.now())


def settings_of(files: TlsFiles) -> dict[str, str]:
    """The settings with which every process serves TLS."""
    return {
        "LCM_TLS_CERT_FILE": str(files.certificate),
        "LCM_TLS_KEY_FILE": str(files.key),
        "LCM_TLS_CA_FILE": str(files.authority),
    }


def _cml_login(simulation: SimulationInfo | None) -> dict[str, str]:
    """The login of the simulated servers; that of real ones is in the environment."""
    if simulation is None:
        return {}
    return {
        "CML_WORKER_API_USERNAME": simulation.cml_username,
        "CML_WORKER_API_PASSWORD": simulation.cml_password,
    }


@contextmanager
def data_dir_for(options: UpOptions, *, is_simulated: bool) -> Iterator[Path]:
    """The given one, or a temporary one for a simulation: its records would outlive its instances."""
    if options.data_dir is None and is_simulated:
        with tempfile.TemporaryDirectory(prefix="lcm-") as directory:
            yield Path(directory)
        return
    data_dir = options.data_dir or Path("lcm-data")
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # before a folder in it is made
    yield data_dir


async def _cloud(options: UpOptions, simulator: SimulatorChild | None) -> Cloud:
    if simulator is not None:
        return _simulated(await ready_simulation(simulator))
    if options.aws_endpoint is not None:
        info = await _fetch_simulation_info(options.aws_endpoint)
        return _simulated(info) if info else _configured(options)
    return _configured(options)


async def ready_simulation(simulator: SimulatorChild) -> SimulationInfo:
    """Wait in a thread for the ready line, which the simulator writes to a pipe."""
    reading = asyncio.get_running_loop().run_in_executor(None, simulator.read_ready_line)
    try:
        async with timeout(READY_WITHIN_SECONDS):
            line = await asyncio.shield(reading)
    except TimeoutError:
        simulator.end()  # this also ends the read
        late = f"the simulator was not ready within {READY_WITHIN_SECONDS:g} s; try 'lcm simulate' alone"
        raise StartFailed(late) from None
    except asyncio.CancelledError:
        simulator.end()
        raise
    if not line:
        raise StartFailed("the simulator did not start; 'lcm simulate' shows why")
    return msgspec.json.decode(line, type=SimulationInfo)


def _simulated(info: SimulationInfo) -> Cloud:
    regions = {config.region: config for config in info.regions}
    ec2 = Ec2Settings(
        endpoint_url=info.aws_endpoint,
        access_key_id="simulated",
        secret_access_key="simulated",
        page_size=100,
    )
    return Cloud(regions, info.regions[0].region, ec2, info.cml_port, info)


def _configured(options: UpOptions) -> Cloud:
    """AWS itself, or an endpoint other than `lcm simulate`: regions come from the file."""
    settings = _settings("worker-controller", WorkerControllerSettings)
    regions, default = read_regions(options.regions or settings.regions_config_path)
    return Cloud(regions, default, Ec2Settings(endpoint_url=options.aws_endpoint), settings.cml_port)


async def _fetch_simulation_info(endpoint: str) -> SimulationInfo | None:
    """The description that `lcm simulate` serves at an endpoint; None if something else answers there."""
    try:
        async with (
            timeout(5),
            aiohttp.ClientSession() as session,
            session.get(f"{endpoint.rstrip('/')}/_lcm/simulation") as response,
        ):
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise StartFailed(f"nothing answers at {endpoint}: {str(error) or 'no answer in time'}") from None
    try:
        return msgspec.json.decode(body, type=SimulationInfo)
    except msgspec.MsgspecError:
        return None


async def _wait_until_ready(
    control_plane: ControlPlaneProcess,
    elections: Collection[Election],
    clock: Clock,
    trust: ClientContext | None,
) -> None:
    """Wait until the API answers, everything is published, and the controllers lead."""
    async with timeout(READY_WITHIN_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{control_plane.url}/ready", ssl=trust_of(trust)) as response:
                    if response.status == 200 and all(election.is_leader for election in elections):
                        return
            except aiohttp.ClientError:
                pass
            await clock.sleep(0.02)


async def create_demo_fleet(
    url: str, token: str, options: UpOptions, license_token: str = "", trust: ClientContext | None = None
) -> None:
    """Create a few workers through the public API; none if there are workers already.

    Workers that are to take sessions need a license, as real ones do.
    """
    chance = random.Random(options.seed)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        timeout(READY_WITHIN_SECONDS),
        aiohttp.ClientSession(
            url, headers=headers, connector=aiohttp.TCPConnector(ssl=trust_of(trust))
        ) as session,
    ):
        async with session.get("/api/workers", params={"include_terminated": "true", "limit": 1}) as response:
            if (await response.json())["items"]:
                return
        is_licensed = options.demo_sessions and license_token != ""
        if is_licensed:
            await license_fleet(session, license_token)
        for number in range(options.workers):
            name, template = DEMO_FLEET[number % len(DEMO_FLEET)]
            if number >= len(DEMO_FLEET):
                name, template = f"{name}-{number // len(DEMO_FLEET) + 1}", chance.choice(DEMO_FLEET)[1]
            body = {"name": name, "template_name": template, "licensed": is_licensed}
            async with session.post("/api/workers", json=body) as response:
                if response.status != 202:
                    raise StartFailed(f"cannot create the demo fleet: {await response.text()}")
        if options.demo_sessions:
            await create_demo_sessions(session, SystemClock().now())


def _ready(
    link: str,
    control_plane: ControlPlaneProcess,
    controller: WorkerControllerProcess,
    scheduler: ResourceSchedulerProcess,
    lablets: LabletControllerProcess,
    cloud: Cloud,
    data_dir: Path,
) -> Ready:
    return Ready(
        url=link,
        token=control_plane.keys.admin,
        ports={
            "control_plane": control_plane.port,
            "worker_controller": controller.port,
            "resource_scheduler": scheduler.port,
            "lablet_controller": lablets.port,
            "cml": cloud.cml_port,
        },
        pid=os.getpid(),
        data_dir=str(data_dir),
        aws_endpoint=cloud.ec2.endpoint_url,
    )
