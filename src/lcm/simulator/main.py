"""The simulation as a whole. Start reading here: wiring, no logic."""

import asyncio
import os
import random
import resource
import socket
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec

from lcm.core.timeouts import timeout
from lcm.domain.template import RegionConfig
from lcm.simulator.aws.config import AwsConfig
from lcm.simulator.aws_process import AwsProcess, SimulationError, aws_process
from lcm.simulator.cml.control import control_endpoint
from lcm.simulator.cml.fleet import Fleet
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.server import Credentials, ServerOptions
from lcm.simulator.pace import Delays, Pace

__all__ = [
    "Delays",
    "ServerOptions",
    "SimulatedWorker",
    "SimulationError",
    "SimulationInfo",
    "SimulationSettings",
    "run",
]

CML_USERNAME: Final = "admin"
INSTANCE_TYPES: Final = ("t3.large", "t3.medium", "m5zn.metal", "t3.small", "t3.micro")
"""Of the workers that exist from the beginning, in turn."""
WORKER_TAGS: Final = {"cml-managed": "true"}
"""The tag that discovery filters by; no tag marks them as launched by LCM."""
WORKERS_READY_SECONDS: Final = 60.0
FILES_PER_WORKER: Final = 8
"""Two listeners and a few connections."""
PORT_KEEPER: Final = "127.64.0.1"
"""No instance has this address; the simulator that holds the CML port here may use it in all networks."""


@dataclass(frozen=True)
class SimulationSettings:
    """The options of a simulation."""

    seed: int = 0
    """Decides delays, load and the password; the same seed gives the same simulation."""
    host: str = "127.0.0.1"
    port: int = 0
    """Of the AWS endpoint; 0 takes a free one."""
    cml_port: int = 0
    """Of every CML server; 0 takes a free one."""
    speed: float = 1.0
    """Divides all delays."""
    data_dir: Path | None = None
    """Where temporary files go; None: the system's place for them."""
    delays: Delays = field(default_factory=Delays)
    workers: int = 0
    """CML servers that exist from the beginning, up and ready."""
    server_options: ServerOptions = field(default_factory=ServerOptions)
    """How CML servers behave; the control endpoint can change it."""
    license_pool: int = 10_000
    """How many servers may be registered with the license token at a time."""

    def __post_init__(self) -> None:
        if not ip_address(self.host).is_loopback:
            raise ValueError(f"host must be a loopback address, not {self.host}: there is no access control")
        if self.speed <= 0:
            raise ValueError("speed must be above 0")


class SimulatedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A CML server and how to log in."""

    url: str
    username: str
    password: str
    instance_id: str
    private_ip: str


class SimulationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a client needs to use the simulation."""

    aws_endpoint: str
    control_url: str
    cml_port: int
    cml_username: str
    cml_password: str
    regions: list[RegionConfig]
    pid: int
    cml_control_url: str = ""
    """The part of the control endpoint below `cml/`, without the detour through the AWS process."""
    license_token: str = ""
    """The token that the simulated licensing accepts."""
    workers: list[SimulatedWorker] = []


async def run(settings: SimulationSettings, announce: Callable[[SimulationInfo], None]) -> None:
    """Run the simulated AWS and CML until cancelled; `announce` is called once, when all of it answers."""
    pace = Pace(seed=settings.seed, speed=settings.speed)
    credentials = Credentials(CML_USERNAME, simulated_password(settings.seed))
    config = AwsConfig(host=settings.host, port=settings.port, pace=pace, delays=settings.delays)
    _allow_open_files(settings.workers * FILES_PER_WORKER)
    with _reserved_port(settings.cml_port) as cml_port:
        fleet = Fleet(
            port=cml_port,
            credentials=credentials,
            pace=pace,
            delays=settings.delays,
            directory=settings.data_dir,
            server_options=settings.server_options,
            pool=LicensePool(_license_token(settings.seed), settings.license_pool),
        )
        async with (
            aws_process(config) as aws,
            control_endpoint(fleet, settings.host) as cml_control_url,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(aws.watch(), name="aws-process")
            tasks.create_task(fleet.follow(aws.listings()), name="cml-fleet")
            tasks.create_task(fleet.keep_time(), name="cml-time")
            info = SimulationInfo(
                aws_endpoint=aws.endpoint,
                control_url=aws.control_url,
                cml_control_url=cml_control_url,
                cml_port=cml_port,
                cml_username=credentials.username,
                cml_password=credentials.password,
                license_token=fleet.pool.token,
                regions=aws.regions,
                pid=os.getpid(),
                workers=await _first_workers(settings.workers, aws, fleet, credentials, cml_port),
            )
            await aws.publish(info)
            announce(info)


async def _first_workers(
    count: int, aws: AwsProcess, fleet: Fleet, credentials: Credentials, cml_port: int
) -> list[SimulatedWorker]:
    """Launch them and wait until every one can be reached."""
    types = [INSTANCE_TYPES[number % len(INSTANCE_TYPES)] for number in range(count)]
    instances = await aws.launch(aws.regions[0].region, types, WORKER_TAGS)
    try:
        async with timeout(WORKERS_READY_SECONDS):
            await fleet.until_listening([instance.id for instance in instances])
    except TimeoutError:
        late = f"the CML servers were not ready within {WORKERS_READY_SECONDS:.0f} s"
        raise SimulationError(late) from None
    return [
        SimulatedWorker(
            url=f"https://{instance.private_ip}:{cml_port}",
            username=credentials.username,
            password=credentials.password,
            instance_id=instance.id,
            private_ip=instance.private_ip,
        )
        for instance in instances
    ]


def _allow_open_files(wanted: int) -> None:
    """Raise the soft limit to the hard one; the usual 1,024 is too few for a large fleet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else max(soft, wanted + 1024)
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def simulated_password(seed: int) -> str:
    """The password of the account that every simulated CML server has."""
    return "".join(random.Random(f"cml-password/{seed}").choices(string.ascii_letters + string.digits, k=20))


def _license_token(seed: int) -> str:
    return "".join(random.Random(f"license-token/{seed}").choices(string.ascii_letters + string.digits, k=80))


@contextmanager
def _reserved_port(port: int) -> Iterator[int]:
    """A port that is ours on every simulated address: a second simulator finds it taken."""
    with socket.socket() as keeper:
        try:
            keeper.bind((PORT_KEEPER, port))
        except OSError as failure:
            raise SimulationError(f"cannot use port {port} on {PORT_KEEPER} for CML: {failure}") from failure
        yield keeper.getsockname()[1]
